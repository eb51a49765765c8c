"""The own work of one rank, step by step: the time of its modules and phases, without waits for other ranks.

In data parallel training every rank's step is as long as the slowest rank's. The other ranks wait, in communication or
in the part of backward that belongs to no module (where DDP waits for its last buckets). The difference between ranks
is therefore in their own work: data, copies, forward and backward of modules, optimizer, user spans.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..frame import TRAINING_LANE, Layout, Nanoseconds, Phase, StepFrame

SpanKey = tuple[str, Phase]

OUTSIDE_ROW: Final[SpanKey] = ("(other)", Phase.OTHER)
"""Time in no span, without autoprof's own work."""
BACKWARD_ROW: Final[SpanKey] = ("(backward)", Phase.BACKWARD)
"""The part of the backward passes that belongs to no module."""
COMM_ROW: Final[SpanKey] = ("(comm)", Phase.COMM)
"""All communication that the training thread waits for."""
WAIT_ROWS: Final = frozenset((OUTSIDE_ROW, BACKWARD_ROW, COMM_ROW))
"""The rows in which a rank may wait for other ranks."""
CLOCK_SCALAR: Final = "gpu_sm_clock_mhz"
"""The device's clock frequency."""
CPU_WAIT_SCALAR: Final = "host_cpu_waiting"
"""The share of the time in which the training thread waits for a processor."""
BATCH_SCALARS: Final = ("tokens", "samples", "frames")
"""Amounts of data in a step."""
RANK_SCALARS: Final = (CLOCK_SCALAR, CPU_WAIT_SCALAR, *BATCH_SCALARS)
"""Scalars of a step that show the cause of a slow rank."""
TOGETHER: Final = 32
"""Steps whose times are added at once, before other threads may run."""


@dataclass(frozen=True, slots=True, eq=False)
class RankRecord:
    """Recorded steps of one rank, in order: their lengths, own work, and self time by row, in nanoseconds.

    Each array has one entry a step. A row that a step has not is 0 there. Steps that do not count are left out.
    ``rows`` has the rows of the own work, and three in which a rank may also wait, ``WAIT_ROWS``: their sum is the
    step without autoprof's own work. ``parents`` has the row around a row, where it is one of ``rows``. ``scalars`` are
    those of ``RANK_SCALARS`` that the rank has, NaN in a step without.
    """

    steps: Nanoseconds
    step_ns: Nanoseconds
    own_ns: Nanoseconds
    rows: Mapping[SpanKey, Nanoseconds]
    parents: Mapping[SpanKey, SpanKey] = field(default_factory=dict)
    scalars: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def select(self, steps: Nanoseconds) -> RankRecord:
        """Return the part with these steps, all of which it has."""
        at = np.searchsorted(self.steps, steps)
        rows = {key: ns[at] for key, ns in self.rows.items()}
        scalars = {name: values[at] for name, values in self.scalars.items()}
        return RankRecord(self.steps[at], self.step_ns[at], self.own_ns[at], rows, self.parents, scalars)


class OwnWork:
    """Collect the last ``capacity`` recorded steps of a rank. A step only costs a reference to its times."""

    def __init__(self, capacity: int) -> None:
        self._frames: deque[StepFrame] = deque(maxlen=capacity)

    def add(self, frame: StepFrame) -> None:
        """Add a step unless it is a warm-up step."""
        if not frame.warmup:
            self._frames.append(frame)

    def _copy(self) -> tuple[StepFrame, ...]:
        """Return the steps collected, also where the training thread adds one meanwhile."""
        while True:
            with suppress(RuntimeError):  # the collection has changed: a garbage collection let the other thread run
                return tuple(self._frames)

    @property
    def steps(self) -> Nanoseconds:
        """The numbers of the steps collected."""
        return np.array(sorted(frame.step for frame in self._copy()), dtype=np.int64)

    def record(self, steps: Collection[int] | None = None, *, pause: Callable[[], object] | None = None) -> RankRecord:
        """Return the own work of the steps collected, or of some; ``pause`` is called now and then."""
        wanted = (frame for frame in self._copy() if steps is None or frame.step in steps)
        frames = sorted(wanted, key=lambda frame: frame.step)
        count = len(frames)
        rows: defaultdict[SpanKey, Nanoseconds] = defaultdict(lambda: np.zeros(count, dtype=np.int64))
        parents: dict[SpanKey, SpanKey] = {}
        scalars: defaultdict[str, npt.NDArray[np.float64]] = defaultdict(lambda: np.full(count, np.nan))
        own_ns = np.zeros(count, dtype=np.int64)
        lengths = np.array([frame.step_ns for frame in frames], dtype=np.int64)
        outside_ns = lengths - np.array([frame.overhead_ns for frame in frames], dtype=np.int64)
        for layout, at in _by_layout(frames):
            columns = _Columns.of(layout)
            parents.update(columns.parents)
            self_ns = layout.self_ns(np.array([frames[one].total_ns for one in at]))
            for column, key in columns.own:
                rows[key][at] += self_ns[:, column]
                own_ns[at] += self_ns[:, column]
            for column, key in columns.waits:
                rows[key][at] += self_ns[:, column]
            outside_ns[at] -= self_ns[:, columns.training].sum(axis=1)
            if pause is not None:
                pause()
        for at_one, frame in enumerate(frames):
            for phase, ns in frame.model_ns.items():
                rows[f"({phase})", phase][at_one] += ns
                own_ns[at_one] += 0 if phase is Phase.BACKWARD else ns
                outside_ns[at_one] -= ns
            for name in RANK_SCALARS:
                if name in frame.scalars:
                    scalars[name][at_one] = frame.scalars[name]
        rows[OUTSIDE_ROW] = np.maximum(outside_ns, 0)
        numbers = np.array([frame.step for frame in frames], dtype=np.int64)
        return RankRecord(numbers, lengths, own_ns, dict(rows), parents, dict(scalars))


def _by_layout(frames: Sequence[StepFrame]) -> Iterator[tuple[Layout, list[int]]]:
    """Yield each layout with the indices of its frames, at most ``TOGETHER`` at a time."""
    found: dict[int, tuple[Layout, list[int]]] = {}
    for at, frame in enumerate(frames):
        found.setdefault(id(frame.layout), (frame.layout, []))[1].append(at)
    for layout, indices in found.values():
        for start in range(0, len(indices), TOGETHER):
            yield layout, indices[start : start + TOGETHER]


class _Columns(NamedTuple):
    """The columns of a layout that belong to rows of a ``RankRecord``, and the rows around these."""

    own: list[tuple[int, SpanKey]]
    waits: list[tuple[int, SpanKey]]
    training: Nanoseconds
    parents: dict[SpanKey, SpanKey]

    @classmethod
    def of(cls, layout: Layout) -> _Columns:
        training = [at for at, lane in enumerate(layout.lanes) if lane == TRAINING_LANE]
        own, waits = list(own_rows(layout)), list(wait_rows(layout))
        return cls(own, waits, np.asarray(training, dtype=np.int64), parent_rows(layout))


def parent_rows(layout: Layout) -> dict[SpanKey, SpanKey]:
    """Return the row around each row of a layout's own work, where it is in one."""
    own = list(own_rows(layout))
    keys = dict([*own, *wait_rows(layout)])
    parents: dict[SpanKey, SpanKey] = {}
    for at, key in own:
        parent = keys.get(layout.parents[at])
        if parent is not None and parent != key:
            parents.setdefault(key, parent)
    return parents


def wait_rows(layout: Layout) -> Iterator[tuple[int, SpanKey]]:
    """Yield the columns of a layout in which a rank may wait for others, each with its row."""
    own = {column for column, _ in own_rows(layout)}
    for column, (phase, lane) in enumerate(zip(layout.phases, layout.lanes, strict=True)):
        if lane == TRAINING_LANE and column not in own:
            yield column, BACKWARD_ROW if phase is Phase.BACKWARD else COMM_ROW


def own_rows(layout: Layout) -> Iterator[tuple[int, SpanKey]]:
    """Yield the columns of a layout that are a rank's own work, each with its row."""
    columns = zip(layout.names, layout.fqns, layout.phases, layout.lanes, strict=True)
    for column, (name, fqn, phase, lane) in enumerate(columns):
        if lane == TRAINING_LANE and phase.traits.own_work and not (phase is Phase.BACKWARD and fqn is None):
            yield column, (name, phase)
