"""Closed steps that repeat the step before them, and groups of steps with the same marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from .._capture.marks import MarkBatch
from ..devices import Clock
from ..frame import Nanoseconds
from .raw import RawStep

HEAD: Final = 2
"""Values of a row before the readings: the Unix time of the step's start, and the cost of its end."""
_NOTHING: Final[Mapping[str, Any]] = {}


class RepeatedSteps:
    """Steps in a row that differ from the step ``like``, after which they came, in nothing but their times.

    ``rows`` (steps × marks + 3) are as C has kept them: the Unix time of the start, the cost of the end, the readings,
    the end. ``start_ns`` is the start of the first one. ``scalars`` are those of each step.
    """

    __slots__ = ("like", "rows", "scalars", "start_ns", "steps")

    def __init__(
        self,
        like: RawStep,
        steps: range,
        start_ns: int,
        rows: Nanoseconds,
        scalars: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.like, self.steps, self.start_ns, self.rows = like, steps, start_ns, rows
        self.scalars = [_NOTHING] * len(steps) if scalars is None else scalars

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def clock(self) -> Clock:
        """The clock of the readings."""
        return self.like.clock

    @property
    def serials(self) -> range:
        """The serial of each step."""
        first = self.like.serial + self.steps.start - self.like.step
        return range(first, first + len(self))

    @property
    def elapsed_ns(self) -> int:
        """The time of all these steps."""
        return int(self.rows[-1, -1]) - self.start_ns

    @property
    def starts_ns(self) -> Nanoseconds:
        """The start of each step."""
        starts = np.empty(len(self), dtype=np.int64)
        starts[0], starts[1:] = self.start_ns, self.rows[:-1, -1]
        return starts

    def with_scalars(self, scalars: Sequence[Mapping[str, Any]]) -> RepeatedSteps:
        """Return the steps with these scalars, one mapping a step."""
        return RepeatedSteps(self.like, self.steps, self.start_ns, self.rows, scalars)

    def raw(self, at: int) -> RawStep:
        """Return one of the steps."""
        row, like = self.rows[at], self.like
        return RawStep(
            self.steps[at],
            int(row[0]),
            self.serials[at],
            like.clock,
            self.start_ns if at == 0 else int(self.rows[at - 1, -1]),
            int(row[-1]),
            MarkBatch(like.mark_batch.raw_codes, row[HEAD:-1].tobytes(), like.mark_batch.thread, False, 0),
            self.scalars[at],
            overhead_ns=int(row[1]),
            instrumented=like.instrumented,
            cut=like.cut,
        )

    @property
    def raws(self) -> list[RawStep]:
        """Each of the steps."""
        return [self.raw(at) for at in range(len(self))]


class StepGroup:
    """Steps in a row of one clock that have the same marks, in columns with one entry a step."""

    def __init__(self, parts: Sequence[RawStep | RepeatedSteps]) -> None:
        self._parts = parts
        self.steps: list[int] = []
        self.overhead_ns: list[int] = []
        self.scalars: list[Mapping[str, Any]] = []
        self.memory: list[Mapping[str, int]] = []
        self.kinds: list[int | None] = []
        """The cut of each step whose statistics need nothing but these columns and its times, None for others."""
        for part in parts:
            if isinstance(part, RepeatedSteps):
                self.steps.extend(part.steps)
                self.overhead_ns.extend(part.rows[:, 1].tolist())
                self.scalars.extend(part.scalars)
                self.memory.extend([_NOTHING] * len(part))
                self.kinds.extend([part.like.cut] * len(part))
            else:
                self.steps.append(part.step)
                self.overhead_ns.append(part.overhead_ns + part.mark_batch.detail_ns)
                self.scalars.append(part.scalars)
                self.memory.append(part.memory)
                self.kinds.append(part.cut if _is_plain(part) else None)

    def __len__(self) -> int:
        return len(self.steps)

    def raws(self, begin: int, end: int) -> list[RawStep]:
        """Return the steps from ``begin`` to ``end``."""
        raws: list[RawStep] = []
        first = 0
        for part in self._parts:
            if isinstance(part, RepeatedSteps):
                raws.extend(part.raw(at) for at in range(max(begin - first, 0), min(end - first, len(part))))
                first += len(part)
            else:
                if begin <= first < end:
                    raws.append(part)
                first += 1
        return raws

    def host_readings(self) -> tuple[Nanoseconds, Nanoseconds]:
        """Return the integer readings of each step with its end behind them, and its start.

        Raises ``OverflowError`` for a reading that needs more than 64 bits.
        """
        readings, starts = [], []
        alone: list[RawStep] = []
        for part in [*self._parts, None]:
            if isinstance(part, RawStep):
                alone.append(part)
                continue
            if alone:
                readings.append(_matrix(alone))
                starts.append(np.array([raw.start for raw in alone], dtype=np.int64))
                alone = []
            if part is not None:
                readings.append(part.rows[:, HEAD:])
                starts.append(part.starts_ns)
        if len(readings) == 1:
            return readings[0], starts[0]
        return np.concatenate(readings), np.concatenate(starts)


def _matrix(raws: Sequence[RawStep]) -> Nanoseconds:
    """Return the readings of steps with equally many marks, the end behind them."""
    readings = np.empty((len(raws), raws[0].mark_batch.mark_count + 1), dtype=np.int64)
    readings[:, :-1] = MarkBatch.matrix([raw.mark_batch for raw in raws])
    readings[:, -1] = [raw.end for raw in raws]
    return readings


def _is_plain(raw: RawStep) -> bool:
    """Return whether statistics need the step's times, scalars and memory readings only."""
    batch = raw.mark_batch
    return not (raw.warmup or raw.gap_steps or raw.gap_scalars or batch.dropped or batch.shapes)
