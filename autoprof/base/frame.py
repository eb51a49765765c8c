"""The data types of a resolved step: ``Phase``, ``Span``, ``Layout``, ``StepFrame``.

The spans of a step are kept in columns. ``Layout`` has the names and the nesting, which most steps of a run share; the
times are a few integer arrays. A frame is therefore about ten objects whatever its number of spans, and the garbage
collector tracks none of them. ``Span`` objects are built only by ``StepFrame.spans``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Nanoseconds = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TRAINING_LANE: Final = 0
"""The lane of the training thread, and of the autograd threads that work while it waits for them."""
LOGGED_LANE: Final = -1
"""The lane of durations measured elsewhere (``log_timing``): they have rows, but are not part of the step's time."""
UNTIMED_LANE: Final = -2
"""The lane of spans without a device time in a step that has one: they have no rows, but are counted by reason."""
STREAM_LANES: Final = 1000
"""Lane = thread + this × stream; stream 0 is the one on which the step began, 1, 2, … are parallel ones."""
BACKWARD_NAME: Final = "(backward)"
"""The name of a backward pass outside all instrumented modules: the loss, and operations between the targets."""
OPTIMIZER_NAME: Final = "Optimizer"
"""The name of the steps of optimizers."""
NOT_MEASURED: Final = -1
"""The entry of a column where nothing was measured; never shown as a value."""


class PhaseTraits(NamedTuple):
    """The properties of a phase that other modules use."""

    short: str = ""
    """Its name in at most 5 characters, for narrow terminals; empty where the phase's own name is that short."""
    color: str = "#7f7f7f"
    """Its colour in figures."""
    in_module: bool = False
    """Whether it is a part of a module's call, which a target may select."""
    in_name: bool = False
    """Whether names show it where there is no column for phases: ``VRT/Stage8 [backward]``."""
    own_work: bool = True
    """False where a rank may be waiting for other ranks."""
    scales_with_batch: bool = True
    """False for work on parameters."""


class Phase(str, Enum):
    """The kind of work that a span's time was spent on; ``OTHER`` is unattributed time and belongs to no span.

    This is the table of phases, in the order of a step: a value and its traits are all that there is to a phase.
    """

    _value_: str
    traits: PhaseTraits

    DATA = "data"
    H2D = "h2d"
    FORWARD = "forward", PhaseTraits("fwd", "#0072b2", in_module=True)
    RECOMPUTE = "recompute", PhaseTraits("rec", "#e69f00", in_module=True, in_name=True)
    BACKWARD = "backward", PhaseTraits("bwd", "#009e73", in_module=True, in_name=True)
    COMM = "comm", PhaseTraits(own_work=False, scales_with_batch=False)
    OPTIMIZER = "optimizer", PhaseTraits("opt", scales_with_batch=False)
    USER = "user"
    OTHER = "other", PhaseTraits(own_work=False)

    def __new__(cls, value: str, traits: PhaseTraits = PhaseTraits()) -> Phase:  # noqa: B008 (immutable)
        phase = str.__new__(cls, value)
        phase._value_, phase.traits = value, traits
        return phase

    def __str__(self) -> str:
        return self._value_

    @classmethod
    def add(cls, value: str, traits: PhaseTraits = PhaseTraits()) -> Phase:  # noqa: B008 (immutable)
        """Add a phase of another package to the table, before ``OTHER``, or return the existing phase of this name.

        Call it when your package is imported: sinks read the table when they open. Readers of saved runs call it
        for every phase, so that they accept phases of packages that are not imported.
        """
        found = cls._value2member_map_.get(value)
        if isinstance(found, Phase):
            return found
        phase, name = str.__new__(cls, value), value.upper()
        if name in cls._member_map_:
            raise ValueError(f"phase: {value!r} differs from {name.lower()!r} only in its case")
        phase._name_, phase._value_, phase.traits = name, value, traits
        setattr(cls, name, phase)  # these three lines are what Enum does for a member in its body
        cls._member_map_[name] = cls._value2member_map_[value] = phase
        cls._member_names_.insert(-1, name)
        return phase

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """Let pydantic read a phase of any package."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.add)

    @property
    def short(self) -> str:
        """Its name in at most 5 characters."""
        return self.traits.short or self._value_[:5]

    def qualify(self, name: str) -> str:
        """Return a span's name for places without a column for phases: ``VRT/Stage8 [backward]``.

        A forward, and names with a single phase, keep their bare name, which people search for.
        """
        return f"{name} [{self}]" if self.traits.in_name and name != f"({self})" else name


MODULE_PHASES: Final = tuple(phase for phase in Phase if phase.traits.in_module)
"""The phases of a module's call."""


@dataclass(frozen=True, slots=True)
class Span:
    """One named interval of one step. Times are nanoseconds since the step's start; None means not measured.

    ``fqn`` is the module's path in the model, None of a span that is no module. ``host_bound_ns`` is the part of the
    device's time in which the device waited for the host. ``memory_peak_bytes`` is the span's peak where the
    allocator's running peak grew in it, else the highest level read.
    """

    name: str
    fqn: str | None
    phase: Phase
    parent: int | None
    """The place in the step's list of spans of the one that this lies in; None at the top."""
    start_ns: int
    host_ns: int
    device_start_ns: int | None = None
    device_ns: int | None = None
    memory_start_bytes: int | None = None
    memory_end_bytes: int | None = None
    calls: int = 1
    """1 where a call begins with it; 0 of a further part of one, as of a backward that pauses for another module."""
    lane: int = TRAINING_LANE
    """The thread and the stream, by the constants above. Of two spans of a lane one lies in the other or after it."""
    host_bound_ns: int | None = None
    memory_peak_bytes: int | None = None

    @property
    def host_bound(self) -> bool | None:
        """Whether the device waited for the host in more than half of the span; None without a device time."""
        if self.host_bound_ns is None or self.device_ns is None:
            return None
        return 2 * self.host_bound_ns > self.device_ns


@dataclass(frozen=True, eq=False)
class Layout:
    """The names and the nesting of a step's spans, without any time. Columns of equal length, parents first.

    ``parents`` are indices into the columns, -1 for a root. ``calls`` is 1, or 0 for the later slices of one call (a
    generator or a coroutine that was suspended). ``lanes`` is ``TRAINING_LANE`` for the training thread on the step's
    stream, 1, 2, … for other threads (plus ``STREAM_LANES`` times the number of a parallel stream), ``LOGGED_LANE`` or
    ``UNTIMED_LANE``. A span and its parent are on one lane.
    """

    names: tuple[str, ...]
    fqns: tuple[str | None, ...]
    phases: tuple[Phase, ...]
    parents: tuple[int, ...]
    calls: tuple[int, ...]
    lanes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _families(self) -> tuple[Nanoseconds, Nanoseconds, Nanoseconds]:
        """Children sorted by parent, the start of each parent's children among them, and the parents."""
        parents = np.asarray(self.parents, dtype=np.int64)
        children = np.flatnonzero(parents >= 0)
        children = children[np.argsort(parents[children], kind="stable")]
        having, starts = np.unique(parents[children], return_index=True)
        return children, starts, having

    @cached_property
    def roots(self) -> Nanoseconds:
        """The spans of the training thread that are in no other span, in order."""
        pairs = zip(self.parents, self.lanes, strict=True)
        roots = [i for i, (parent, lane) in enumerate(pairs) if parent < 0 and lane == TRAINING_LANE]
        return np.asarray(roots, dtype=np.int64)

    @cached_property
    def phase_groups(self) -> tuple[tuple[Phase, Nanoseconds], ...]:
        """For each phase its spans of the training thread, in order."""
        groups: dict[Phase, list[int]] = {}
        for i, (phase, lane) in enumerate(zip(self.phases, self.lanes, strict=True)):
            if lane == TRAINING_LANE:
                groups.setdefault(phase, []).append(i)
        return tuple((phase, np.asarray(indices, dtype=np.int64)) for phase, indices in groups.items())

    def self_ns(self, total_ns: Nanoseconds) -> Nanoseconds:
        """Return each span's time without its children, exactly: ``total - sum(total of children)``.

        The last axis runs over the spans; steps of one layout may be stacked before it.
        """
        own: Nanoseconds = total_ns.copy()
        children, starts, having = self._families
        if len(children):
            own[..., having] -= np.add.reduceat(total_ns[..., children], starts, axis=-1)
        return own


class Gap(NamedTuple):
    """Unsampled steps before a recorded one: their number, their time, and autoprof's own work at both ends."""

    steps: int = 0
    ns: int = 0
    overhead_ns: int = 0


NO_GAP: Final = Gap()


@dataclass(frozen=True, eq=False)
class StepFrame:
    """One step's resolved spans, in integers: nanoseconds and bytes.

    The columns have one entry a span, ``NOT_MEASURED`` for a span without a device time or a reading; those of the
    device are None without a device clock. ``host_bound_ns`` is the part of ``device_ns`` in which the device waited
    for the host. ``device_duration_ns`` is None also where the step's ends have no common device time; host times are
    used then. ``memory`` has the readings at the step's end. ``dropped`` counts lost marks and spans. ``warmup`` steps
    are excluded from every statistic. ``gap_steps`` unsampled steps before this one took ``gap_ns``, beside
    ``gap_overhead_ns`` of autoprof's own work at both ends; ``gap_scalars`` has their samples, tokens and frames.
    ``model_ns`` is time of the model's own operations that no span covers, by phase. ``cut`` numbers the set of targets
    with which the step was recorded.
    """

    step: int
    start_unix_ns: int
    duration_ns: int
    layout: Layout
    start_ns: Nanoseconds
    host_ns: Nanoseconds
    device_duration_ns: int | None = None
    device_start_ns: Nanoseconds | None = None
    device_ns: Nanoseconds | None = None
    host_bound_ns: Nanoseconds | None = None
    memory_start_bytes: Nanoseconds | None = None
    memory_end_bytes: Nanoseconds | None = None
    memory_peak_bytes: Nanoseconds | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    overhead_ns: int = 0
    dropped: int = 0
    warmup: bool = False
    gap_steps: int = 0
    gap_ns: int = 0
    gap_overhead_ns: int = 0
    gap_scalars: Mapping[str, float] = field(default_factory=dict)
    model_ns: Mapping[Phase, int] = field(default_factory=dict)
    cut: int = 0

    @classmethod
    def of(cls, **values: Any) -> StepFrame:
        """Make a frame from the values of all fields, without the slow assignments of a frozen ``__init__``."""
        frame = cls.__new__(cls)
        object.__setattr__(frame, "__dict__", values)
        return frame

    @property
    def spans(self) -> tuple[Span, ...]:
        """Build the step's spans as objects, in the order of the columns (a parent before its children)."""
        layout, count = self.layout, len(self.layout)
        return tuple(
            map(
                Span,
                layout.names,
                layout.fqns,
                layout.phases,
                (None if parent < 0 else parent for parent in layout.parents),
                self.start_ns.tolist(),
                self.host_ns.tolist(),
                _optional(self.device_start_ns, count, self.device_ns),
                _optional(self.device_ns, count),
                _optional(self.memory_start_bytes, count),
                _optional(self.memory_end_bytes, count),
                layout.calls,
                layout.lanes,
                _optional(self.host_bound_ns, count),
                _optional(self.memory_peak_bytes, count),
            )
        )

    @property
    def step_ns(self) -> int:
        """The step's length: in device time where there is one, else in host time."""
        return self.duration_ns if self.device_duration_ns is None else self.device_duration_ns

    @property
    def total_ns(self) -> Nanoseconds:
        """Each span's length on the clock of ``step_ns``; 0 for a span without a device time."""
        if self.device_duration_ns is None or self.device_ns is None:
            return self.host_ns
        return self.device_ns.clip(min=0)

    def phase_ns(self) -> dict[Phase, int]:
        """Return the self time of each phase and the rest as ``OTHER``; the values sum to ``step_ns``."""
        return phases_of_steps([self])[0]

    def check(self) -> list[str]:
        """Return each law that the step breaks as a sentence; none of a step whose account adds up.

        A span lies in its parent, on the same lane, and those of one parent follow one another: on the host, and on
        the device where it has a clock. No span, and no step, is shorter than the parts of it.
        """
        layout, lanes = self.layout, np.asarray(self.layout.lanes, dtype=np.int64)
        timed, training = lanes >= 0, lanes == TRAINING_LANE
        broken = list(_misplaced(layout, timed))
        broken += _out_of_place(layout, timed, self.start_ns, self.host_ns, "")
        broken += _sentences(
            layout, timed & (self.start_ns + self.host_ns > self.duration_ns), "it ends after the step"
        )
        broken += _sentences(layout, timed & (self.start_ns < 0), "it begins before the step")
        broken += _overlaps(layout, timed, self.start_ns, self.host_ns, "")
        if self.device_duration_ns is not None and self.device_ns is not None and self.device_start_ns is not None:
            end = self.device_start_ns + self.device_ns
            broken += _out_of_place(layout, timed, self.device_start_ns, self.device_ns, " on the device")
            broken += _sentences(
                layout, training & (end > self.device_duration_ns), "it ends after the step on the device"
            )
            broken += _overlaps(layout, training, self.device_start_ns, self.device_ns, " on the device")
            if self.host_bound_ns is not None:
                waits = (self.host_bound_ns < 0) | (self.host_bound_ns > self.device_ns)
                broken += _sentences(layout, timed & waits, "the device waits for longer than it takes")
        broken += _sentences(layout, layout.self_ns(self.total_ns) < 0, "the spans in it take longer than itself")
        if self.phase_ns()[Phase.OTHER] < 0:
            broken.append(f"step {self.step}: its phases take longer than itself")
        return broken


def _misplaced(layout: Layout, timed: Flags) -> Iterator[str]:
    parents, lanes = np.asarray(layout.parents, dtype=np.int64), np.asarray(layout.lanes, dtype=np.int64)
    inner = parents >= 0
    yield from _sentences(layout, inner & ~timed, "it has a parent, but no place in the step")
    yield from _sentences(layout, inner & (parents >= np.arange(len(parents))), "it comes before its parent")
    yield from _sentences(layout, inner & (lanes[parents] != lanes), "it is on another lane than its parent")


def _out_of_place(layout: Layout, timed: Flags, start: Nanoseconds, length: Nanoseconds, clock: str) -> Iterator[str]:
    parents, end = np.asarray(layout.parents, dtype=np.int64), start + length
    inner = timed & (parents >= 0)
    yield from _sentences(layout, timed & (length < 0), f"its time is negative{clock}")
    yield from _sentences(layout, inner & (start < start[parents]), f"it begins before its parent{clock}")
    yield from _sentences(layout, inner & (end > end[parents]), f"it ends after its parent{clock}")


def _overlaps(layout: Layout, ordered: Flags, start: Nanoseconds, length: Nanoseconds, clock: str) -> Iterator[str]:
    parents, lanes, end = (
        np.asarray(layout.parents, dtype=np.int64),
        np.asarray(layout.lanes, dtype=np.int64),
        start + length,
    )
    order = np.lexsort((end, start, parents, lanes))
    order = order[ordered[order]]
    before, after = order[:-1], order[1:]
    beside = (lanes[before] == lanes[after]) & (parents[before] == parents[after])
    overlaps = np.zeros(len(parents), dtype=bool)
    overlaps[after[beside & (start[after] < end[before])]] = True
    yield from _sentences(layout, overlaps, f"it begins before the span beside it ends{clock}")


def _sentences(layout: Layout, broken: Flags, law: str) -> Iterator[str]:
    for at in np.flatnonzero(broken):
        yield f"{layout.names[at]} {layout.phases[at]}: {law}"


def phases_of_steps(frames: Sequence[StepFrame]) -> list[dict[Phase, int]]:
    """Return ``phase_ns()`` of steps that share a layout and have equal columns."""
    layout = frames[0].layout
    own = layout.self_ns(np.array([frame.total_ns for frame in frames]))
    sums = [(phase, own[:, spans].sum(axis=1).tolist()) for phase, spans in layout.phase_groups]
    found = []
    for at, frame in enumerate(frames):
        phases = {phase: column[at] for phase, column in sums}
        for phase, ns in frame.model_ns.items():
            phases[phase] = phases.get(phase, 0) + ns
        phases[Phase.OTHER] = frame.step_ns - sum(phases.values())
        found.append(phases)
    return found


@dataclass(eq=False)
class FrameRun:
    """Frames of recorded steps in a row with one layout and one cut, in columns with one entry a step.

    A warm-up step, and one with ``dropped`` marks, is a run of its own. ``gaps`` has the gap before each step.
    ``total_ns`` and ``host_bound_ns`` (None without device times) are matrices (steps × spans); ``total_ns`` is on the
    clock of ``step_ns``. ``untimed``: the steps have no device time, although the clock is a device's.
    ``overhead_ns`` is the sum of the steps. ``make`` makes the frames when they are first asked for, with the memory of
    spans where it was read (``has_memory``); until then entries of ``scalars`` and ``gap_scalars`` may be replaced.
    ``waited_ns`` is the most time of each step in which the device waited for the host (None without a device);
    ``events_ns`` is its time for a step's events.
    """

    steps: Sequence[int]
    scalars: list[Mapping[str, float]]
    gap_scalars: list[Mapping[str, float]]
    make: Callable[[], Sequence[StepFrame]]
    layout: Layout
    cut: int
    warmup: bool
    dropped: int
    untimed: bool
    has_memory: bool
    step_ns: Sequence[int]
    gaps: Sequence[Gap]
    total_ns: Nanoseconds
    host_bound_ns: Nanoseconds | None
    overhead_ns: int
    memory: Sequence[Mapping[str, int]]
    model_ns: Mapping[Phase, Sequence[int]]
    waited_ns: Sequence[int] | None = None
    events_ns: int = 0

    @classmethod
    def of(cls, frame: StepFrame) -> FrameRun:
        """Return a run of one frame."""
        scalars, gap_scalars = [frame.scalars], [frame.gap_scalars]
        return cls(
            [frame.step],
            scalars,
            gap_scalars,
            lambda: [replace(frame, scalars=scalars[0], gap_scalars=gap_scalars[0])],
            frame.layout,
            frame.cut,
            frame.warmup,
            frame.dropped,
            frame.device_ns is not None and frame.device_duration_ns is None,
            frame.memory_start_bytes is not None,
            [frame.step_ns],
            [Gap(frame.gap_steps, frame.gap_ns, frame.gap_overhead_ns)],
            frame.total_ns[None],
            None if frame.host_bound_ns is None else frame.host_bound_ns[None].clip(min=0),
            frame.overhead_ns,
            [frame.memory],
            {phase: [ns] for phase, ns in frame.model_ns.items()},
        )

    @cached_property
    def frames(self) -> Sequence[StepFrame]:
        """The frames of the steps, in order."""
        return self.make()


def _optional(column: Nanoseconds | None, count: int, measured: Nanoseconds | None = None) -> list[int | None]:
    if column is None:
        return [None] * count
    seen = column if measured is None else measured
    return [None if mark == NOT_MEASURED else value for value, mark in zip(column.tolist(), seen.tolist(), strict=True)]
