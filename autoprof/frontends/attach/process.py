"""For the command: the facts of a process, and of those that it started, as the system has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ...errors import AutoprofError
from .exchange import started, status_fields

PYTHON_NAME: Final = re.compile(r"python[\d.]*(t|d|td)?( \(deleted\))?")
"""The name of an interpreter's file."""
OF_PYTHON: Final = re.compile(r"multiprocessing\.(resource_tracker|forkserver)")
"""Helpers of multiprocessing, which train nothing."""


class Process(NamedTuple):
    """A process that can be asked."""

    pid: int
    started: int
    """When it started, in clock ticks since the system did: no later process has both."""
    uid: int
    python: str
    """The path of its interpreter."""

    @property
    def is_alive(self) -> bool:
        """Whether it runs, and is not a zombie."""
        try:
            return started(self.pid) == self.started and status_fields(self.pid)[0] != "Z"
        except OSError:
            return False

    @property
    def blocks_in(self) -> str:
        """Return the system call in which its main thread waits, as far as the system tells; else nothing."""
        try:
            return Path(f"/proc/{self.pid}/wchan").read_text(encoding="utf-8").strip("0")
        except OSError:
            return ""


def find_process(pid: int) -> Process:
    """Return a Python process. Raises ``AutoprofError`` with a remedy where it cannot be asked."""
    if sys.platform != "linux":
        raise AutoprofError(f"attach: {sys.platform}: processes are found on Linux alone; use autoprof run here")
    if pid == os.getpid():
        raise AutoprofError(f"attach: {pid}: is this command itself; give the number of the training process")
    try:
        uid, began = os.stat(f"/proc/{pid}").st_uid, started(pid)
    except OSError:
        raise AutoprofError(f"attach: {pid}: there is no process of this number; pgrep -af python lists some") from None
    try:
        python = os.readlink(f"/proc/{pid}/exe")
        spaces = [os.stat(f"/proc/{one}/ns/mnt").st_ino for one in (pid, "self")]
    except PermissionError:
        raise AutoprofError(f"attach: {pid}: belongs to another user; run the command as user {uid}") from None
    except OSError:
        raise AutoprofError(f"attach: {pid}: has ended, or belongs to the system") from None
    if uid != os.geteuid():  # root would execute an interpreter, and write into a folder, that are another's
        raise AutoprofError(f"attach: {pid}: belongs to another user; run the command as user {uid}")
    if spaces[0] != spaces[1]:
        raise AutoprofError(f"attach: {pid}: runs in another container; run the command inside of it")
    if not PYTHON_NAME.fullmatch(os.path.basename(python)):
        raise AutoprofError(f"attach: {pid}: runs {python}; allowed: a process of Python")
    return Process(pid, began, uid, python)


def find_ranks(launcher: int) -> list[int]:
    """Return the outermost processes below a launcher that have a rank; without any, its Python children.

    Raises ``AutoprofError`` where there are none.
    """
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    ranks, pending = list[int](), children.get(launcher, [])[:]
    while pending:
        pid = pending.pop(0)
        if "RANK" in _environment(pid):
            ranks.append(pid)
        else:
            pending += children.get(pid, [])
    ranks = ranks or [pid for pid in children.get(launcher, []) if _is_python_program(pid)]
    if not ranks:
        raise AutoprofError(f"attach: --job {launcher}: has started no Python process; give the launcher's number")
    return sorted(ranks, key=lambda pid: (int(_environment(pid).get("RANK", "0") or 0), pid))


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield int(name), int(status_fields(int(name))[1])
            except OSError:  # it has ended meanwhile
                continue


def _environment(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def _is_python_program(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return bool(PYTHON_NAME.fullmatch(os.path.basename(os.readlink(f"/proc/{pid}/exe")))) and not OF_PYTHON.search(
            command
        )
    except OSError:
        return False


def version_of(process: Process) -> tuple[int, int]:
    """Return the version of a process's Python, which its interpreter itself prints. Raises ``AutoprofError``."""
    code = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    asked = subprocess.run([process.python, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    name, *numbers = asked.stdout.split() or [""]
    if name != "cpython":
        raise AutoprofError(
            f"attach: {process.pid}: its interpreter {process.python} "
            + (f"is {name}; allowed: CPython" if name else "is gone; it may have been updated meanwhile")
        )
    return int(numbers[0]), int(numbers[1])
