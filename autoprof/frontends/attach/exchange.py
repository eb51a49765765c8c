"""The files through which a command and a process talk: a request one way, replies and texts the other."""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...errors import OutputError

PLACE: Final = "/tmp/autoprof-{uid}-{space}"
"""The folder of the processes of a user in a space of process numbers; both sides know it, whatever their TMPDIR is."""
VARIABLE: Final = "AUTOPROF_ATTACH"
"""The environment variable that starts the listener of a process."""
LISTEN: Final = "listen"
"""The named pipe from which a listener reads the paths of requests, one a line."""
REQUEST: Final = "request.json"
"""The request; where it is gone, the process opens no session, and closes the one that it has."""
SCRIPT: Final = "script.py"
"""The code that a process executes which does not listen."""
REPLIES: Final = "replies"
TEXT: Final = "text"
"""The text that the session prints."""
START: Final = "start"
"""The number of the step end at which the session opens, where several processes begin together."""


class Request(NamedTuple):
    """The wishes of a command."""

    folder: str
    """The working directory of the command, to which the other paths are relative."""
    config: str | None = None
    output: str | None = None
    name: str | None = None
    """The name of the run's folder; the ranks of a job share it."""
    steps: int | None = None
    """The steps after which the process closes the session without a further request."""
    waits: bool = False
    """Whether the process reports each step end, and opens the session at the one that the file ``START`` names."""

    def write(self, exchange: Path) -> Path:
        """Write the request into the folder of its exchange; return its path."""
        path = exchange / REQUEST
        write_whole(path, json.dumps(self._asdict()))
        return path

    @classmethod
    def read(cls, path: Path) -> Request | None:
        """Return a request; None where the command has taken it back."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def process_folder(pid: int, uid: int) -> Path:
    """Return the folder of a process. Another process with its number, later, has another."""
    return place(uid) / f"{pid}-{started(pid)}"


def place(uid: int) -> Path:
    """Return the folder of the processes of a user. A container has numbers of its own, and may share ``/tmp``."""
    return Path(PLACE.format(uid=uid, space=os.stat("/proc/self/ns/pid").st_ino))


def started(pid: int) -> int:
    """Return when a process started, in clock ticks since the system did. Raises ``OSError`` where there is none."""
    return int(status_fields(pid)[19])


def status_fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the program's name, its state first (proc(5))."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def make_folder(folder: Path, uid: int) -> None:
    """Make a folder that this user alone can read, and those above it. Raises ``OutputError`` where it is another's."""
    for one in (folder.parent, folder):
        one.mkdir(mode=0o700, exist_ok=True)
        found = one.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or stat.S_IMODE(found.st_mode) & 0o077:
            raise OutputError(f"attach: {one}: belongs to another user, or others may read it; remove it")


def owner_lives(folder: Path, uid: int) -> bool:
    """Return whether the process or the command whose folder this is still runs."""
    try:
        return process_folder(int(folder.name.partition("-")[0]), uid) == folder
    except (OSError, ValueError):
        return False


def remove_stale(uid: int) -> None:
    """Remove the folders of processes and commands that were killed, but those whose session may still be open."""
    for folder in place(uid).iterdir():
        asked = [path.parent.name.partition("-")[0] for path in folder.glob(f"*/{REQUEST}")]
        if not owner_lives(folder, uid) and not any(os.path.exists(f"/proc/{pid}") for pid in asked):
            shutil.rmtree(folder, ignore_errors=True)


def reply(exchange: Path, state: str, **facts: Any) -> None:
    """Append a reply. It is lost where the folder is gone with the command, or the disk is full."""
    line = json.dumps({"state": state, **facts}) + "\n"
    with suppress(OSError):
        file = os.open(exchange / REPLIES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def read_replies(exchange: Path, after: int = 0) -> list[dict[str, Any]]:
    """Return the replies but the first ``after``; a line that is not whole yet comes later."""
    try:
        text = (exchange / REPLIES).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split("\n")[after:-1]]
