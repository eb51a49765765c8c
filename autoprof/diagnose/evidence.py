"""What the rules may know of a run: ``Evidence``, made alike of a live run and of a saved one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any, Final, NamedTuple

from ..span import TRAINING_LANE, Layout, Nanoseconds, Phase
from ..summary import Row, Summary

SPREAD: Final = 2 * 1.2533 / 1.6449
"""Half a 95 % interval of a median is 2 x 1.2533 sigma / sqrt(n) (its standard error under a normal distribution),
and sigma is (p95 - p50) / 1.6449. Times are skewed to the right, so p95 makes it wider than it need be."""
BIN_ERROR: Final = 0.01
"""Quantiles are within 1 % (logarithmic bins)."""


class Interval(NamedTuple):
    """A median and where it may lie: from ``low`` to ``high``."""

    low: float
    middle: float
    high: float

    def over(self, whole: Interval) -> Interval:
        """Return this as a part of another one: the widest that the two allow."""
        if whole.low <= 0:
            return Interval(0.0, 0.0, 0.0)
        return Interval(self.low / whole.high, self.middle / whole.middle, self.high / whole.low)

    @classmethod
    def of(cls, p50: float, p95: float, count: int, least: float, most: float) -> Interval:
        """Return the interval of a median of ``count`` values."""
        half = SPREAD * (p95 - p50) / sqrt(max(count, 1)) + (BIN_ERROR * p50 if most > least else 0.0)
        return cls(max(p50 - half, least), p50, min(p50 + half, most))


class LongStep(NamedTuple):
    """One of a run's longest steps: how long it was, and how long each span of its layout."""

    step: int
    step_ns: int
    layout: Layout
    total_ns: Nanoseconds


@dataclass(frozen=True, slots=True)
class OptimizerFact:
    """What is known of one optimizer: ``fused`` and ``foreach`` are None where torch chooses by itself.

    ``state_word_bytes`` is the size of most of the state's values, ``origin`` the package of its class,
    ``eight_bit_bytes`` what the state would hold at one byte a value; None is not known.
    """

    kind: str
    fused: bool | None
    foreach: bool | None
    parameter_bytes: int
    state_bytes: int
    state_word_bytes: int = 4
    origin: str = "torch"
    can_fuse: bool | None = None
    device: str = ""
    eight_bit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run knows of itself beside its steps; None is not known. It goes to and from JSON."""

    budget: float | None = None
    memory_capacity_bytes: int | None = None
    world_size: int = 1
    collected: tuple[int, ...] | None = None
    """Which of the longest steps had a full collection of Python's garbage."""
    collections: int = 0
    """How many steps had one."""
    optimizers: tuple[OptimizerFact, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Facts:
        """Read back what ``to_dict`` wrote."""
        values = dict(data)
        if values.get("collected") is not None:
            values["collected"] = tuple(values["collected"])
        if values.get("optimizers") is not None:
            values["optimizers"] = tuple(OptimizerFact(**fact) for fact in values["optimizers"])
        return cls(**values)


@dataclass(frozen=True)
class Evidence:
    """All that the rules see. ``memory`` has the least reading of ``memory_kind`` in each stretch of the run."""

    summary: Summary
    facts: Facts = field(default_factory=Facts)
    longest: tuple[LongStep, ...] | None = None
    memory: tuple[tuple[int, int], ...] = ()
    memory_kind: str | None = None

    @cached_property
    def rows(self) -> dict[Phase, list[Row]]:
        """The training thread's rows by phase, longest first."""
        found: dict[Phase, list[Row]] = {}
        for row in self.summary.rows:
            if row.lane == TRAINING_LANE:
                found.setdefault(row.phase, []).append(row)
        return found

    @cached_property
    def step(self) -> Interval:
        """The step's median."""
        run = self.summary
        return Interval.of(run.step_p50_ns, run.step_p95_ns, run.steps, run.step_min_ns, run.step_max_ns)

    def row(self, row: Row) -> Interval:
        """Return a row's nanoseconds a step of the run, also where it occurs in some steps only."""
        part = row.steps / max(self.summary.steps, 1)
        one = Interval.of(row.p50_ns, row.p95_ns, row.steps, row.min_ns, row.max_ns)
        return Interval(one.low * part, one.middle * part, one.high * part)

    def own(self, rows: list[Row]) -> Interval:
        """Return the rows' own nanoseconds a step, added up: what children take is counted in the children."""
        low = middle = high = 0.0
        for row in rows:
            one, own = self.row(row), row.self_ns / max(row.total_ns, 1)
            low, middle, high = low + own * one.low, middle + own * one.middle, high + own * one.high
        return Interval(low, middle, high)
