"""What a comparison of runs comes to, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ..frame import Phase
from ..summary import Clock

Verdict = Literal["faster", "slower", "less", "more", "same", "inconclusive"]
Over = Literal["yes", "no", "unknown"]
Unit = Literal["ns", "samples/s", "bytes"]


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity on both sides.

    ``a`` and ``b`` are medians over steps (of several runs: the geometric mean of their medians), ``ratio`` is b / a
    with its 95 % interval from ``low`` to ``high``; each is None where it cannot be told, and ``why`` says why.
    ``p`` is adjusted for all the rows judged with it. ``over`` answers whether it is slower than the limit of
    ``fail_over``. ``share_a`` and ``share_b`` are of the step. ``unit`` is that of ``a`` and ``b``.
    """

    name: str
    phase: Phase | None
    unit: Unit
    a: float | None
    b: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    verdict: Verdict = "inconclusive"
    why: str = ""
    over: Over | None = None
    share_a: float | None = None
    share_b: float | None = None
    steps_a: int = 0
    steps_b: int = 0
    was: str | None = None
    """The name in A, where B has another one for the same modules."""

    @property
    def change(self) -> float | None:
        """``ratio`` as a fraction of a: 0.05 is 5 % more."""
        return None if self.ratio is None else self.ratio - 1


@dataclass(frozen=True, slots=True)
class Lone:
    """A row that one side has alone: its median time per step in which it occurred."""

    name: str
    phase: Phase
    fqns: tuple[str, ...]
    ns: float
    share: float | None


@dataclass(frozen=True, slots=True)
class RunNote:
    """What a run had to give. ``left_alone`` steps were not recorded; warm-up and ``untimed`` ones are left out."""

    path: str
    ranks: tuple[int, ...]
    clock: Clock
    steps: int
    warmup: int
    left_alone: int
    untimed: int
    bad_lines: int
    stride: int
    ended: str | None
    overhead: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """What ``run.json`` says differently; a side whose own runs disagree has several values."""

    key: str
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides of runs: the whole step, throughput and memory, phases, rows, what only one of them has.

    Times are of one ``clock`` (None: the sides have different ones, and only the host's whole steps are compared).
    ``rows`` come with the largest difference first. ``margin`` is what counts as the same; ``limit`` is ``fail_over``.
    """

    a: tuple[RunNote, ...]
    b: tuple[RunNote, ...]
    clock: Clock | None
    margin: float
    limit: float | None
    whole: tuple[Change, ...]
    phases: tuple[Change, ...]
    rows: tuple[Change, ...]
    memory: tuple[Change, ...] = ()
    added: tuple[Lone, ...] = ()
    removed: tuple[Lone, ...] = ()
    regrouped: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    """Names that stand for other modules in B than in A: the modules that only A and only B have."""
    small: int = 0
    """Rows below ``min_share`` on both sides: neither judged nor listed."""
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    filtered: bool = False

    def over_limit(self, *, strict: bool = False) -> tuple[Change, ...]:
        """Return what is slower than the limit with confidence; with ``strict`` also what may be."""
        words = ("yes", "unknown") if strict else ("yes",)
        return tuple(one for one in (*self.whole, *self.phases, *self.rows) if one.over in words)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON types."""
        data = asdict(self)
        for key in ("whole", "phases", "rows", "memory", "added", "removed"):
            for entry in data[key]:
                entry["phase"] = None if entry["phase"] is None else str(entry["phase"])
        return data
