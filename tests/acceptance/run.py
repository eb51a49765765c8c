"""Run programs in processes of their own, with a time limit, on a quiet or on a deliberately busy machine."""

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .judge import PRINTED, Check
from .registry import Program

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 120.0
"""The time a program may take."""
_ORDER: Final = ("right", "uncertain", "wrong")


@dataclass(frozen=True)
class Result:
    """The comparison of one program; ``error`` is the reason why there is none."""

    program: Program
    checks: tuple[Check, ...]
    error: str | None
    seconds: float
    printed: str

    @property
    def verdict(self) -> str:
        """The worst verdict of the checks."""
        if self.error is not None:
            return "wrong"
        return max((check.verdict for check in self.checks), key=_ORDER.index)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types."""
        return {
            "name": self.program.name,
            "section": self.program.section,
            "sentence": self.program.sentence,
            "verdict": self.verdict,
            "error": self.error,
            "seconds": self.seconds,
            "checks": [check.to_dict() for check in self.checks],
        }


def run_all(chosen: Iterable[Program], jobs: int, limit_s: float = LIMIT_S) -> Iterator[Result]:
    """Run programs, ``jobs`` at a time; yield their results in the order given. A program is taken when it begins."""
    with ThreadPoolExecutor(jobs) as pool:
        running: deque[Future[Result]] = deque()
        for entry in chosen:
            running.append(pool.submit(run_one, entry, limit_s))
            if len(running) == jobs:
                yield running.popleft().result()
        yield from (one.result() for one in running)


def run_one(entry: Program, limit_s: float = LIMIT_S) -> Result:
    """Run one program in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="programs_") as folder:
        place = Path(folder)
        result, printed = place / "result.json", place / PRINTED
        environment = {key: value for key, value in os.environ.items() if not key.startswith("AUTOPROF")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment.update(PYTHONWARNINGS="ignore", COLUMNS="80")
        command = [sys.executable, "-m", "tests.acceptance.worker", entry.name, str(result)]
        error: str | None = None
        with printed.open("wb") as output:
            try:
                subprocess.run(command, cwd=place, env=environment, stdout=output, stderr=output, timeout=limit_s)
            except subprocess.TimeoutExpired:
                error = f"did not end within {limit_s:.0f} s"
        text = printed.read_text(encoding="utf-8", errors="replace")
        if error is None and not result.exists():
            error = f"the process died: {text.strip().splitlines()[-1:]}"
        if error is not None:
            return Result(entry, (), error, limit_s, text)
        answer = json.loads(result.read_text(encoding="utf-8"))
        checks = tuple(Check(**check) for check in answer["checks"])
        return Result(entry, checks, answer["error"], answer["seconds"], text)
