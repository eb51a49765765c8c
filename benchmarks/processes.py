"""Run programs as processes of their own, and read their cost and the files of autoprof."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAMS: Final = Path(__file__).resolve().parent / "programs"
_BUSY: Final = "while True: pass"
_COST: Final = re.compile(r"\bstart [\d.]+ (?:s|ms|µs).{1,60}?\bsteps\b.{1,60}?\bend [\d.]+ (?:s|ms|µs)")
"""How a report states the cost of a whole run: start, steps and end."""
_TERMINAL: Final = (100, 40)
"""Columns and rows of the terminal of a run."""


@dataclass(frozen=True, slots=True)
class Process:
    """The cost of a process from its start to its exit, and the report of its run, if it was recorded."""

    wall_s: float
    processor_s: float
    report: dict[str, Any] | None

    def figure(self, name: str) -> Any:
        """Return a figure of the report. Raises ``RuntimeError`` where the run left none."""
        if self.report is None:
            raise RuntimeError("the recorded run left no summary")
        return self.report[name]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a process: without settings of autoprof, with this number of torch's threads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOPROF")}
    kept.pop("CI", None)
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}


def run_program(arguments: Sequence[str], threads: int) -> Process:
    """Run Python with these arguments in an empty folder; its output is discarded."""
    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment(threads),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(arguments)}: {errors.read().decode(errors='replace').strip()[-2000:]}")
        return Process(wall_s, usage.ru_utime + usage.ru_stime, _report(Path(folder)))


def _report(folder: Path) -> dict[str, Any] | None:
    """Return the figures of the run that was saved here, and how its report states its cost."""
    found = sorted(folder.glob("runs/*/summary.json"))
    if not found:
        return None
    summary = json.loads(found[-1].read_text(encoding="utf-8"))
    text = (found[-1].parent / "summary.txt").read_text(encoding="utf-8")
    whole = _COST.search(" ".join(text.split()))
    steps = summary["steps"] + summary.get("warmup_steps", 0)
    return {
        "steps": steps,
        "all_steps": steps + summary.get("unsampled_steps", 0),
        "step_ms": summary["step_mean_ns"] / 1e6,
        "rows": len({(row["name"], row["phase"]) for row in summary["rows"]}),
        "overhead": summary.get("overhead"),
        "stated": "nothing" if whole is None else whole[0],
    }


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many processes busy inside the block."""
    running = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run_on_terminal(arguments: Sequence[str], threads: int) -> None:
    """Run Python with these arguments on a terminal of its own, whose output is read as it is printed."""
    columns, rows = _TERMINAL
    settings = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(ROOT)
        script = f'stty cols {columns} rows {rows}; exec "$0" "$@"'
        os.execve("/bin/sh", ["sh", "-c", script, sys.executable, *arguments], {**environment(threads), **settings})
    printed = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so at the end of a terminal that no process writes to any more
            piece = b""
        if not piece:
            break
        printed = (printed + piece)[-4000:]
    os.close(terminal)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError(f"{' '.join(arguments)}: {printed.decode(errors='replace')}")
