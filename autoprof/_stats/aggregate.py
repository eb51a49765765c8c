"""Frames → running statistics, folded in by the block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Final

import numpy as np

from .._units import NS_PER_S, UNITS
from ..frame import LOGGED_LANE, NOT_MEASURED, UNTIMED_LANE, Layout, Nanoseconds, Phase, StepFrame
from ..summary import Clock, Row, Summary
from .block import BLOCK, Block
from .rows import RowKey, step_rows
from .shapes import ShapeNotes
from .table import UNKNOWN, Table

BLOCKS: Final = 32
"""Layouts with a block of their own; a run whose steps all differ folds them in early instead of growing."""
ROWS: Final = 4096
"""Rows kept apart; names made up anew each step would else grow without end. What comes later is counted."""
UNTIMED_STEPS: Final = "steps without a device time"
"""Why a step of a device's run is in no statistic: host times among device times would be neither."""


STEP: Final = RowKey("", Phase.OTHER, 0)
"""The row of the steps themselves: always the first."""
_STEP_ROW: Final = np.zeros(1, dtype=np.int64)


class Aggregate:
    """Fold frames into statistics. Not thread-safe: it belongs to the thread that calls ``Session.step``."""

    def __init__(self) -> None:
        self.steps = 0
        self.warmup_steps = 0
        self.unsampled_steps = self._unsampled_ns = 0
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._scalars: dict[str, float] = {}
        self._shapes = ShapeNotes(ROWS)
        self._memory: dict[str, int] = {}
        self._phases: Counter[Phase] = Counter()
        self._blocks: dict[Layout, Block] = {}
        self._clock: Clock = "host"
        self._micro_steps = Counter[int]()
        self._units: dict[str, tuple[float, int]] = {}
        self._overhead_ns = 0
        self._observed_ns = 0
        self._table = Table()
        self._table.row(STEP, None, None)

    def add(self, frame: StepFrame) -> None:
        """Fold one frame in; a warm-up frame is only counted."""
        if frame.dropped:
            self.dropped["marks"] += frame.dropped
        if frame.memory:
            self._memory.update(frame.memory)
        if frame.scalars:
            self._scalars.update(frame.scalars)
        if frame.shapes:
            self._shapes.add(frame)
        self._overhead_ns += frame.overhead_ns
        self._observed_ns += frame.duration_ns
        if frame.gap_steps:
            self.left_alone(frame.gap_steps, frame.gap_ns)
        if frame.warmup:
            self.warmup_steps += 1
            self._remember(frame)  # an allocator's running peak grows most in the first steps, and only then tells
            return
        if frame.device_ns is not None and frame.device_duration_ns is None:
            self.skipped[UNTIMED_STEPS] += 1
            return
        self.steps += 1
        if frame.device_ns is not None:
            self._clock = "device"
        if frame.micro_steps is not None:
            self._micro_steps[frame.micro_steps] += 1
        if frame.scalars:
            self._count_units(frame)
        block = self._blocks.get(frame.layout) or self._open_block(frame.layout)
        block.add(frame)
        if frame.memory_start_bytes is not None and frame.memory_end_bytes is not None:
            self._remember(frame)
            self._fold_growth(block, frame.memory_start_bytes, frame.memory_end_bytes)
        if block.count == BLOCK:
            self._fold(block)

    def left_alone(self, steps: int, elapsed_ns: int) -> None:
        """Take account of steps that were not recorded; of none, where the run ends as they begin."""
        if not steps:
            return
        self.unsampled_steps += steps
        self._unsampled_ns += elapsed_ns
        self._observed_ns += elapsed_ns

    def _count_units(self, frame: StepFrame) -> None:
        for unit in UNITS:
            held = frame.scalars.get(unit)
            if held is not None and isfinite(held):
                count, ns = self._units.get(unit, (0.0, 0))
                self._units[unit] = count + held, ns + frame.duration_ns

    def _throughput(self) -> tuple[str, float | None]:
        """Return the first unit that steps held, and how many of it a second."""
        for unit in UNITS:
            count, ns = self._units.get(unit, (0.0, 0))
            if ns:
                rate = count * NS_PER_S / ns
                return unit, rate if isfinite(rate) else None  # no JSON holds what overflows
        return UNITS[0], None

    def _open_block(self, layout: Layout) -> Block:
        if len(self._blocks) >= BLOCKS:
            self.fold()
            self._blocks.clear()
        rows, table = step_rows(layout), self._table
        row_of = np.full(len(rows), -1, dtype=np.int64)
        for i, key in enumerate(rows.keys):
            if key.lane == UNTIMED_LANE:  # counted with its reason where it was found
                continue
            if key not in table.index and len(table.index) >= ROWS:
                self.dropped["names beyond the limit"] += 1
                continue
            parent = rows.parents[i]
            row_of[i] = table.row(key, rows.fqns[i], rows.keys[parent] if parent >= 0 else None)
        block = self._blocks[layout] = Block(layout, row_of)
        return block

    def fold(self) -> None:
        """Fold in what waits in blocks, so that every number is current."""
        for block in self._blocks.values():
            if block.count:
                self._fold(block)

    def _fold(self, block: Block) -> None:
        count, rows, table = block.count, block.rows, self._table
        block.count = 0
        total = block.total[:count]
        own = block.layout.self_ns(total)
        for phase, spans in block.layout.phase_groups:
            self._phases[phase] += int(own[:, spans].sum())
        table.count(_STEP_ROW, block.steps[:count, None], block.last_step)
        totals = rows.totals(total)
        hosts = totals if block.host is None else rows.totals(block.host[:count])
        kept = block.row_of >= 0
        into = block.row_of[kept]
        table.count(into, totals[:, kept], block.last_step)
        table.own[into] += rows.sums(own).sum(axis=0)[kept]
        table.host[into] += hosts.sum(axis=0)[kept]
        table.calls[into] += rows.calls[kept] * count
        if block.bound is not None:
            table.bound[into] += rows.totals(block.bound[:count]).sum(axis=0)[kept]
            block.bound[:count] = 0

    def _remember(self, frame: StepFrame) -> None:
        if frame.memory_start_bytes is not None and frame.memory_end_bytes is not None:
            block = self._blocks.get(frame.layout) or self._open_block(frame.layout)
            self._table.remember(block.row_of[block.rows.of_span], frame)

    def _fold_growth(self, block: Block, start: Nanoseconds, end: Nanoseconds) -> None:
        seen = (start != NOT_MEASURED) & (end != NOT_MEASURED)
        growth = block.rows.totals(np.where(seen, end - start, 0))
        kept = block.row_of >= 0
        into = block.row_of[kept]
        measured = block.rows.totals(seen.astype(np.int64))[kept] > 0
        into = into[measured]
        self._table.growth[into] = np.maximum(self._table.growth[into], growth[kept][measured])

    def merge(self, other: Aggregate) -> None:
        """Add another window's or rank's statistics to this one."""
        self.fold()
        other.fold()
        beyond = self._table.merge(other._table, ROWS)
        if beyond:
            self.dropped["names beyond the limit"] += beyond
        self._phases.update(other._phases)
        self.skipped.update(other.skipped)
        self.dropped.update(other.dropped)
        self.steps += other.steps
        self.warmup_steps += other.warmup_steps
        self.unsampled_steps += other.unsampled_steps
        self._unsampled_ns += other._unsampled_ns
        self._overhead_ns += other._overhead_ns
        self._observed_ns += other._observed_ns
        self._micro_steps.update(other._micro_steps)
        for unit, (count, ns) in other._units.items():
            mine = self._units.get(unit, (0.0, 0))
            self._units[unit] = mine[0] + count, mine[1] + ns
        self._scalars.update(other._scalars)
        self._shapes.note(other._shapes.all())
        self._memory.update(other._memory)
        if other._clock == "device":
            self._clock = "device"

    def summary(self, *, notes: tuple[str, ...] = (), skipped: Mapping[str, int] | None = None) -> Summary:
        """Return the statistics so far, rows in descending order of total time."""
        self.fold()
        table, some = self._table, self.steps > 0
        p50, p95 = table.quantiles_ns(0.5, 0.95)
        total_step_ns = int(table.total[0])
        phases = {phase: self._phases[phase] for phase in Phase if phase in self._phases}
        phases[Phase.OTHER] = total_step_ns - sum(phases.values())
        rows = self._rows(p50, p95, total_step_ns)
        rows.sort(key=lambda row: (-row.total_ns, row.name, row.phase))
        unit, throughput = self._throughput()
        return Summary(
            clock=self._clock,
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            unsampled_steps=self.unsampled_steps,
            unsampled_ns=self._unsampled_ns,
            total_step_ns=total_step_ns,
            step_mean_ns=total_step_ns // self.steps if some else 0,
            step_min_ns=int(table.min[0]) if some else 0,
            step_max_ns=int(table.max[0]),
            step_p50_ns=int(p50[0]) if some else 0,
            step_p95_ns=int(p95[0]) if some else 0,
            step_last_ns=int(table.last[0]),
            phases=phases,
            rows=tuple(rows),
            overhead=self._overhead_ns / self._observed_ns if self._observed_ns else 0.0,
            overhead_ns=self._overhead_ns,
            throughput=throughput,
            throughput_unit=unit,
            scalars=dict(self._scalars),
            memory=dict(self._memory),
            micro_steps=max(self._micro_steps, key=lambda count: (self._micro_steps[count], count), default=None),
            dropped=self._lost(),
            skipped={**self.skipped, **(skipped or {})},
            notes=notes,
            shapes=self._shapes.all(),
        )

    def _lost(self) -> dict[str, int]:
        shapes = {"shapes beyond the limit": self._shapes.dropped} if self._shapes.dropped else {}
        return {**self.dropped, **shapes}

    def _rows(self, p50: Nanoseconds, p95: Nanoseconds, step_ns: int) -> list[Row]:
        # By the column, not by the element: a live display asks for this twice a second.
        table, used = self._table, len(self._table.index)
        mean = table.total[:used] // np.maximum(table.occurred[:used], 1)
        least = np.minimum(table.min[:used], table.max[:used])
        peaks = _measured(table.peak[:used])
        growths = [None if growth == -UNKNOWN else growth for growth in table.growth[:used].tolist()]
        total = table.total[:used].tolist()
        made = map(
            Row,
            [key.name for key in table.index],
            table.fqns,
            [key.phase for key in table.index],
            table.calls.tolist(),
            table.occurred.tolist(),
            total,
            table.own.tolist(),
            table.host.tolist(),
            mean.tolist(),
            least.tolist(),
            table.max.tolist(),
            p50.tolist(),
            p95.tolist(),
            table.last.tolist(),
            [ns / step_ns if step_ns else 0.0 for ns in total],
            [None if parent is None else parent.name for parent in table.parents],
            [key.lane for key in table.index],
            growths,
            peaks,
            self._host_bound(used),
            _measured(table.ceiling[:used]),
            _measured(table.reserved[:used]),
        )
        return [row for row in list(made)[1:] if row.steps]  # the first is the step itself; some had warm-up only

    def _host_bound(self, used: int) -> list[float | None]:
        """Return by row how much of its device time was host-bound; None where there is no device time."""
        table, keys = self._table, self._table.index
        if self._clock == "host":
            return [None] * used
        shares = (table.bound[:used] / np.maximum(table.total[:used], 1)).tolist()
        return [None if key.lane == LOGGED_LANE else share for key, share in zip(keys, shares, strict=True)]


def _measured(column: Nanoseconds) -> list[int | None]:
    return [None if value in (NOT_MEASURED, UNKNOWN) else value for value in column.tolist()]
