"""A log and its truth, written together, so that the truth is the printed number."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

CORPUS = Path(__file__).resolve().parents[1]
MAKERS: list[Callable[[], Log]] = []


class Log:
    """The lines of a log, and per training record the numbers that are printed in them."""

    def __init__(self, name: str, source: str, *, note: str = "", counter: str = "exact", suffix: str = "log") -> None:
        self.name, self.suffix, self.source, self.note, self.counter = name, suffix, source, note, counter
        self.text = ""
        self.rows: list[dict[str, Any]] = []
        self.validation: list[dict[str, Any]] = []
        self.derivable: dict[str, float] = {}
        self.batch_size: float | None = None
        self.written = "by hand from the source"
        self.encoding = "utf-8"
        self._random = random.Random(name)

    def line(self, *lines: str) -> None:
        """Add whole lines."""
        self.text += "".join(f"{line}\n" for line in lines)

    def raw(self, text: str) -> None:
        """Add text as it is: a carriage return, half a line."""
        self.text += text

    def row(self, step: int | None = None, **values: Any) -> None:
        """Add the truth of a training record, in autoprof's columns and units."""
        self.rows.append({"step": step, **values})

    def valid(self, step: int | None = None, **values: Any) -> None:
        """Add the truth of a validation record."""
        self.validation.append({"step": step, **values})

    def around(self, middle: float, digits: int = 4, spread: float = 0.1) -> float:
        """A number near `middle`, of as many digits as the log prints."""
        return round(middle * self._random.uniform(1 - spread, 1 + spread), digits)

    def loss(self, index: int, digits: int = 4, start: float = 7.0) -> float:
        """A loss that falls with the record's index."""
        return round(start / (1 + 0.15 * index) * self._random.uniform(0.97, 1.03), digits)

    def save(self) -> None:
        """Write the log, and its truth beside it."""
        path = CORPUS / f"{self.name}.{self.suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.text.encode(self.encoding))
        write_truth(path, self.truth())

    def truth(self) -> dict[str, Any]:
        """The truth file's content."""
        truth: dict[str, Any] = {"source": self.source, "written": self.written}
        if self.note:
            truth["note"] = self.note
        truth["counter"] = self.counter
        truth["records"] = len(self.rows)
        truth["training"] = _columns(self.rows)
        if self.validation:
            truth["validation"] = _columns(self.validation)
        if self.batch_size:
            truth["batch_size"] = self.batch_size
        if self.derivable:
            truth["derivable"] = self.derivable
        return truth


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def write_truth(log: Path, truth: dict[str, Any]) -> None:
    """Write a truth file: lists on one line, so that a column is a line."""
    text = ""
    for key, value in truth.items():
        if isinstance(value, dict) and value:
            text += f"{key}:\n"
            for name, inner in value.items():
                text += f"  {name}: {_inline(inner)}\n"
        else:
            text += f"{key}: {_inline(value)}\n"
    log.with_name(f"{log.name}.truth.yaml").write_text(text, "utf-8")


def _inline(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True).split("\n")[0]


def maker(function: Callable[[], Log]) -> Callable[[], Log]:
    """Register a function that returns a log."""
    MAKERS.append(function)
    return function


def clock(start: str = "2026-03-02 09:14:07") -> Callable[[float], datetime]:
    """Return a function that advances a clock by seconds and returns its time."""
    now = datetime.fromisoformat(start)

    def advance(seconds: float) -> datetime:
        nonlocal now
        now += timedelta(seconds=seconds)
        return now

    return advance


def bar(done: int, total: int, width: int = 10) -> str:
    """A progress bar of tqdm's blocks."""
    eighths = int(done / total * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(width)[:width]


def hms(seconds: float) -> str:
    """Seconds as 1:02:03."""
    return str(timedelta(seconds=int(seconds)))


def ms(seconds: float) -> str:
    """Seconds as tqdm prints them: 02:03 or 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
