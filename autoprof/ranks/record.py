"""The own work of one rank, step by step: the time of its modules and phases, without waits for other ranks.

In data parallel training every rank's step is as long as the slowest rank's. The other ranks wait, in communication or
in the part of backward that belongs to no module (where DDP waits for its last buckets). The difference between ranks
is therefore in their own work: data, copies, forward and backward of modules, optimizer, user spans.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ..base.frame import TRAINING_LANE, Layout, Nanoseconds, Phase, StepFrame
from ..base.stats.layout_cache import cached_by_layout
from ..base.units import INPUT_SCALAR

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
BATCH_SCALARS: Final = ("tokens", "samples", "frames", INPUT_SCALAR)
"""Amounts of data in a step."""
RANK_SCALARS: Final = (CLOCK_SCALAR, CPU_WAIT_SCALAR, *BATCH_SCALARS)
"""Scalars of a step that show the cause of a slow rank."""


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

    def record(self, steps: Collection[int] | None = None) -> RankRecord:
        """Return the own work of the steps collected, or of some."""
        wanted = (frame for frame in self._copy() if steps is None or frame.step in steps)
        frames = sorted(wanted, key=lambda frame: frame.step)
        count = len(frames)
        rows: defaultdict[SpanKey, Nanoseconds] = defaultdict(lambda: np.zeros(count, dtype=np.int64))
        parents: dict[SpanKey, SpanKey] = {}
        scalars: defaultdict[str, npt.NDArray[np.float64]] = defaultdict(lambda: np.full(count, np.nan))
        by_layout: defaultdict[Layout, list[int]] = defaultdict(list)
        for at, frame in enumerate(frames):
            by_layout[frame.layout].append(at)
            for phase, ns in frame.model_ns.items():
                rows[f"({phase})", phase][at] += ns
            for name in RANK_SCALARS:
                if name in frame.scalars:
                    scalars[name][at] = frame.scalars[name]
        for layout, indices in by_layout.items():
            columns, around = _columns(layout)
            parents.update(around)
            self_ns = layout.self_ns(np.array([frames[at].total_ns for at in indices]))
            for column, key in columns:
                rows[key][indices] += self_ns[:, column]
        zeros = np.zeros(count, dtype=np.int64)
        lengths = np.array([frame.step_ns for frame in frames], dtype=np.int64)
        overheads = np.array([frame.overhead_ns for frame in frames], dtype=np.int64)
        own_ns = sum((ns for key, ns in rows.items() if key not in WAIT_ROWS), zeros)
        rows[OUTSIDE_ROW] = np.maximum(lengths - overheads - sum(rows.values(), zeros), 0)
        numbers = np.array([frame.step for frame in frames], dtype=np.int64)
        return RankRecord(numbers, lengths, own_ns, dict(rows), parents, dict(scalars))


@cached_by_layout
def _columns(layout: Layout) -> tuple[list[tuple[int, SpanKey]], dict[SpanKey, SpanKey]]:
    """Return the columns of the training thread, each with its row, and the rows around rows of own work."""
    keys: dict[int, SpanKey] = {}
    parents: dict[SpanKey, SpanKey] = {}
    columns = zip(layout.names, layout.fqns, layout.phases, layout.lanes, layout.parents, strict=True)
    for column, (name, fqn, phase, lane, parent) in enumerate(columns):
        if lane != TRAINING_LANE:
            continue
        if phase is Phase.BACKWARD and fqn is None:
            keys[column] = BACKWARD_ROW
        elif not phase.traits.own_work:
            keys[column] = COMM_ROW
        else:
            key = keys[column] = name, phase
            if parent in keys and keys[parent] != key:
                parents.setdefault(key, keys[parent])
    return list(keys.items()), parents
