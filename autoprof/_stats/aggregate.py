"""Frames → running statistics of a run.

The rows of a layout are found once (``rows``). The steps of one layout are collected in a block and then added to the
statistics (``table``) together, so that a step costs a copy, and the arithmetic's fixed cost occurs once a block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Final

import numpy as np

from .._units import NS_PER_S, UNITS
from ..frame import LOGGED_LANE, NOT_MEASURED, UNTIMED_LANE, Layout, Nanoseconds, Phase, StepFrame
from ..summary import ClockName, Row, Summary
from .rows import RowKey, step_rows
from .shapes import ShapeSets
from .table import UNKNOWN, Table

BLOCK_STEPS: Final = 64
"""Steps of one layout that are added to the statistics together."""
MAX_BLOCKS: Final = 32
"""Layouts with a block of their own. Beyond that all blocks are added and dropped, so memory stays bounded."""
MAX_ROWS: Final = 4096
"""Rows with statistics of their own, in case names are made up anew each step. Further rows are only counted."""
UNTIMED_STEPS: Final = "steps without a device time"
"""Reason to exclude a step of a run on a device: host times cannot be added to device times."""

_WHOLE_STEP: Final = RowKey("", Phase.OTHER, 0)
"""The row of the steps themselves, always the first."""
_STEP_ROW: Final = np.zeros(1, dtype=np.int64)


class _Block:
    """Steps of one layout that are not yet in the statistics.

    ``row_of`` has the table's row for each row of the layout, -1 for none. ``host`` and ``host_bound`` are None as long
    as the totals are host times.
    """

    __slots__ = ("count", "host", "host_bound", "last_step", "layout", "row_of", "rows", "steps", "total")

    def __init__(self, layout: Layout, row_of: Nanoseconds) -> None:
        self.layout = layout
        self.rows = step_rows(layout)
        self.row_of = row_of
        self.count = 0
        self.last_step = -1
        self.total: Nanoseconds = np.empty((BLOCK_STEPS, len(layout)), dtype=np.int64)
        self.host: Nanoseconds | None = None
        self.host_bound: Nanoseconds | None = None
        self.steps: Nanoseconds = np.empty(BLOCK_STEPS, dtype=np.int64)

    def add(self, frame: StepFrame) -> None:
        """Copy one step into the block."""
        at = self.count
        self.total[at] = frame.total_ns
        if frame.device_ns is not None:
            if self.host is None:
                self.host = self.total.copy()  # the steps so far have host times only
            self.host[at] = frame.host_ns
            if frame.host_bound_ns is not None:
                if self.host_bound is None:
                    self.host_bound = np.zeros_like(self.total)
                self.host_bound[at] = frame.host_bound_ns.clip(min=0)
        elif self.host is not None:
            self.host[at] = frame.host_ns
        self.steps[at] = frame.step_ns
        self.last_step = frame.step
        self.count = at + 1


class Aggregate:
    """Add frames to statistics. Not thread-safe: it belongs to the thread that calls ``Session.step``."""

    def __init__(self) -> None:
        self.steps = 0
        self.warmup_steps = 0
        self.unsampled_steps = self._unsampled_ns = 0
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._clock: ClockName = "host"
        self._overhead_ns = 0
        self._observed_ns = 0
        self._scalars: dict[str, float] = {}
        self._memory: dict[str, int] = {}
        self._phases: Counter[Phase] = Counter()
        self._micro_steps = Counter[int]()
        self._units: dict[str, tuple[float, int]] = {}
        self._shapes = ShapeSets(MAX_ROWS)
        self._blocks: dict[Layout, _Block] = {}
        self._table = Table()
        self._table.row(_WHOLE_STEP, None, None)

    def add(self, frame: StepFrame) -> None:
        """Add one frame; a warm-up frame is only counted."""
        if frame.dropped:
            self.dropped["marks"] += frame.dropped
        if frame.memory:
            self._memory.update(frame.memory)
        if frame.scalars:
            self._scalars.update(frame.scalars)
        if frame.shapes:
            self._shapes.add_frame(frame)
        self._overhead_ns += frame.overhead_ns
        self._observed_ns += frame.duration_ns
        if frame.gap_steps:
            self.add_gap(frame.gap_steps, frame.gap_ns)
        if frame.warmup:
            self.warmup_steps += 1
            self._add_memory(frame)  # an allocator's running peak grows most in the first steps, and shows only there
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
            self._add_units(frame)
        block = self._blocks.get(frame.layout) or self._open_block(frame.layout)
        block.add(frame)
        if frame.memory_start_bytes is not None and frame.memory_end_bytes is not None:
            self._add_memory(frame)
            self._add_growth(block, frame.memory_start_bytes, frame.memory_end_bytes)
        if block.count == BLOCK_STEPS:
            self._add_block(block)

    def add_gap(self, steps: int, elapsed_ns: int) -> None:
        """Add unsampled steps; there are none where the run ends as a gap begins."""
        if not steps:
            return
        self.unsampled_steps += steps
        self._unsampled_ns += elapsed_ns
        self._observed_ns += elapsed_ns

    def _add_units(self, frame: StepFrame) -> None:
        for unit in UNITS:
            value = frame.scalars.get(unit)
            if value is not None and isfinite(value):
                count, ns = self._units.get(unit, (0.0, 0))
                self._units[unit] = count + value, ns + frame.duration_ns

    def _throughput(self) -> tuple[str, float | None]:
        """Return the first unit that was logged, and its count per second."""
        for unit in UNITS:
            count, ns = self._units.get(unit, (0.0, 0))
            if ns:
                rate = count * NS_PER_S / ns
                return unit, rate if isfinite(rate) else None  # JSON has no infinity
        return UNITS[0], None

    def _open_block(self, layout: Layout) -> _Block:
        if len(self._blocks) >= MAX_BLOCKS:
            self._add_blocks()
            self._blocks.clear()
        rows, table = step_rows(layout), self._table
        row_of = np.full(len(rows), -1, dtype=np.int64)
        for i, key in enumerate(rows.keys):
            if key.lane == UNTIMED_LANE:  # counted by its reason where it was found
                continue
            if key not in table.index and len(table.index) >= MAX_ROWS:
                self.dropped["names beyond the limit"] += 1
                continue
            parent = rows.parents[i]
            row_of[i] = table.row(key, rows.fqns[i], rows.keys[parent] if parent >= 0 else None)
        block = self._blocks[layout] = _Block(layout, row_of)
        return block

    def _add_blocks(self) -> None:
        """Add the steps of all blocks to the statistics, so that every number is current."""
        for block in self._blocks.values():
            if block.count:
                self._add_block(block)

    def _add_block(self, block: _Block) -> None:
        count, rows, table = block.count, block.rows, self._table
        block.count = 0
        total = block.total[:count]
        self_ns = block.layout.self_ns(total)
        for phase, spans in block.layout.phase_groups:
            self._phases[phase] += int(self_ns[:, spans].sum())
        table.add_steps(_STEP_ROW, block.steps[:count, None], block.last_step)
        totals = rows.totals(total)
        hosts = totals if block.host is None else rows.totals(block.host[:count])
        kept = block.row_of >= 0
        into = block.row_of[kept]
        table.add_steps(into, totals[:, kept], block.last_step)
        table.self_time[into] += rows.sums(self_ns).sum(axis=0)[kept]
        table.host[into] += hosts.sum(axis=0)[kept]
        table.calls[into] += rows.calls[kept] * count
        if block.host_bound is not None:
            table.host_bound[into] += rows.totals(block.host_bound[:count]).sum(axis=0)[kept]
            block.host_bound[:count] = 0

    def _add_memory(self, frame: StepFrame) -> None:
        if frame.memory_start_bytes is not None and frame.memory_end_bytes is not None:
            block = self._blocks.get(frame.layout) or self._open_block(frame.layout)
            self._table.add_memory(block.row_of[block.rows.of_span], frame)

    def _add_growth(self, block: _Block, start: Nanoseconds, end: Nanoseconds) -> None:
        seen = (start != NOT_MEASURED) & (end != NOT_MEASURED)
        growth = block.rows.totals(np.where(seen, end - start, 0))
        kept = block.row_of >= 0
        into = block.row_of[kept]
        measured = block.rows.totals(seen.astype(np.int64))[kept] > 0
        into = into[measured]
        self._table.growth[into] = np.maximum(self._table.growth[into], growth[kept][measured])

    def merge(self, other: Aggregate) -> None:
        """Add another window's or rank's statistics to this one."""
        self._add_blocks()
        other._add_blocks()
        beyond = self._table.merge(other._table, MAX_ROWS)
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
            own_count, own_ns = self._units.get(unit, (0.0, 0))
            self._units[unit] = own_count + count, own_ns + ns
        self._scalars.update(other._scalars)
        self._shapes.add(other._shapes.all())
        self._memory.update(other._memory)
        if other._clock == "device":
            self._clock = "device"

    def summary(self, *, notes: tuple[str, ...] = (), skipped: Mapping[str, int] | None = None) -> Summary:
        """Return the statistics so far, rows in descending order of total time."""
        self._add_blocks()
        table, has_steps = self._table, self.steps > 0
        p50, p95 = table.quantiles_ns(0.5, 0.95)
        total_step_ns = int(table.total[0])
        phases = {phase: self._phases[phase] for phase in Phase if phase in self._phases}
        phases[Phase.OTHER] = total_step_ns - sum(phases.values())
        rows = self._rows(p50, p95, total_step_ns)
        rows.sort(key=lambda row: (-row.total_ns, row.name, row.phase))
        unit, throughput = self._throughput()
        shapes_dropped = {"shapes beyond the limit": self._shapes.dropped} if self._shapes.dropped else {}
        return Summary(
            clock=self._clock,
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            unsampled_steps=self.unsampled_steps,
            unsampled_ns=self._unsampled_ns,
            total_step_ns=total_step_ns,
            step_mean_ns=total_step_ns // self.steps if has_steps else 0,
            step_min_ns=int(table.min[0]) if has_steps else 0,
            step_max_ns=int(table.max[0]),
            step_p50_ns=int(p50[0]) if has_steps else 0,
            step_p95_ns=int(p95[0]) if has_steps else 0,
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
            dropped={**self.dropped, **shapes_dropped},
            skipped={**self.skipped, **(skipped or {})},
            notes=notes,
            shapes=self._shapes.all(),
        )

    def _rows(self, p50: Nanoseconds, p95: Nanoseconds, step_ns: int) -> list[Row]:
        # Whole columns instead of single elements: a live display asks for the rows twice a second.
        table, used = self._table, len(self._table.index)
        mean = table.total[:used] // np.maximum(table.steps[:used], 1)
        least = np.minimum(table.min[:used], table.max[:used])
        total = table.total[:used].tolist()
        rows = map(
            Row,
            [key.name for key in table.index],
            table.fqns,
            [key.phase for key in table.index],
            table.calls.tolist(),
            table.steps.tolist(),
            total,
            table.self_time.tolist(),
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
            [None if growth == -UNKNOWN else growth for growth in table.growth[:used].tolist()],
            _measured(table.peak[:used]),
            self._host_bound_shares(used),
            _measured(table.peak_bound[:used]),
            _measured(table.reserved[:used]),
        )
        return [row for row in list(rows)[1:] if row.steps]  # without the whole step, and rows seen in warm-up only

    def _host_bound_shares(self, used: int) -> list[float | None]:
        """Return the host-bound share of each row's device time; None where there is no device time."""
        table, keys = self._table, self._table.index
        if self._clock == "host":
            return [None] * used
        shares = (table.host_bound[:used] / np.maximum(table.total[:used], 1)).tolist()
        return [None if key.lane == LOGGED_LANE else share for key, share in zip(keys, shares, strict=True)]


def _measured(column: Nanoseconds) -> list[int | None]:
    return [None if value in (NOT_MEASURED, UNKNOWN) else value for value in column.tolist()]
