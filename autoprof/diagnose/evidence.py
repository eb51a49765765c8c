"""What the rules may know of a run: ``Evidence``, made alike of a live run and of a saved one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from ..frame import TRAINING_LANE, Layout, Nanoseconds, Phase
from ..summary import Row, Summary
from .calls import CallFacts
from .compiled import CompileFacts
from .environment import Surroundings
from .interval import Interval as Interval
from .ranks import RankFacts


class LongStep(NamedTuple):
    """One of a run's longest steps: how long it was, and how long each span of its layout."""

    step: int
    step_ns: int
    layout: Layout
    total_ns: Nanoseconds
    clock_mhz: float | None = None
    """The device's clock at its last reading before the step's end."""


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
    rank: int = 0
    waits: CallFacts | None = None
    """Calls that waited for the device; None without a device's clock."""
    logs: CallFacts | None = None
    """Calls that logged."""
    compiled: CompileFacts | None = None
    """What torch compiled; None where that was not counted."""
    ranks: RankFacts | None = None
    """How the ranks compare; None where one trains alone, and on all but rank 0."""
    surroundings: Surroundings = field(default_factory=Surroundings)

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
        for name, read in _READ.items():
            if values.get(name) is not None:
                values[name] = read(values[name])
        return cls(**values)


_READ: Final[dict[str, Callable[[Mapping[str, Any]], Any]]] = {
    "waits": CallFacts.from_dict,
    "logs": CallFacts.from_dict,
    "compiled": CompileFacts.from_dict,
    "ranks": RankFacts.from_dict,
    "surroundings": Surroundings.from_dict,
}


@dataclass(frozen=True)
class Evidence:
    """All that the rules see. ``memory`` has the least reading of ``memory_kind`` in each stretch of the run."""

    summary: Summary
    facts: Facts = field(default_factory=Facts)
    longest: tuple[LongStep, ...] | None = None
    memory: tuple[tuple[int, int], ...] = ()
    memory_kind: str | None = None
    clock_mhz: float | None = None
    """The device's usual clock: the median of the last readings."""

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
