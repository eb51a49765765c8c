"""The result of a comparison, as frozen data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...base.frame import Phase
from ...base.summary import ClockName

Verdict = Literal["faster", "slower", "less", "more", "same", "inconclusive"]
Unit = Literal["ns", "samples/s", "bytes"]


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity on both sides.

    ``a`` and ``b`` are medians over steps; with several runs, the geometric mean of their medians. ``ratio`` is b / a
    with its 95 % interval from ``low`` to ``high``. Each is None where it is unknown, and ``why`` gives the reason.
    ``p`` is adjusted for all rows tested together. ``over`` says whether it is proven to be slower than the limit of
    ``fail_over``. ``share_a`` and ``share_b`` are of the step.
    """

    name: str
    phase: Phase | None
    unit: Unit
    a: float | None = None
    b: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    verdict: Verdict = "inconclusive"
    why: str = ""
    over: bool = False
    share_a: float | None = None
    share_b: float | None = None
    steps_a: int = 0
    steps_b: int = 0


@dataclass(frozen=True, slots=True)
class RunNote:
    """The records of a run: ``steps`` are compared; warm-up, unsampled and ``untimed`` ones are excluded.

    ``untimed`` steps have no device time; ``older`` ones stand before the last 50,000 of a long run.
    """

    path: str
    ranks: tuple[int, ...]
    clock: ClockName
    steps: int
    warmup: int
    unsampled: int
    untimed: int
    bad_lines: int
    older: int
    ended: str | None
    overhead: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry of ``run.json`` that differs; a side whose own runs differ has several values."""

    key: str
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides of runs: the whole step, throughput, memory, phases and rows; a row of one side only has no verdict.

    All times are of one ``clock``; it is None where the sides have different ones, and only the host time of whole
    steps is compared. ``rows`` are in descending order of their difference. Changes within ``margin`` are the same;
    ``limit`` is ``fail_over``.
    """

    a: tuple[RunNote, ...]
    b: tuple[RunNote, ...]
    clock: ClockName | None
    margin: float
    limit: float | None
    whole: tuple[Change, ...]
    phases: tuple[Change, ...]
    rows: tuple[Change, ...]
    memory: tuple[Change, ...] = ()
    small: int = 0
    """Rows below ``min_share`` on both sides, which are neither tested nor listed."""
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    def over_limit(self) -> tuple[Change, ...]:
        """Return the changes proven to be slower than the limit."""
        return tuple(change for change in (*self.whole, *self.phases, *self.rows) if change.over)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON types."""
        data = asdict(self)
        for key in ("whole", "phases", "rows", "memory"):
            for entry in data[key]:
                entry["phase"] = None if entry["phase"] is None else str(entry["phase"])
        return data
