"""Statistics of the steps that were recorded with the same targets, a cut through the tree of modules.

The rows of a layout are found once (``rows``). The steps of one layout are collected in a block and then added to the
statistics (``table``) together, so that a step costs a copy, and the arithmetic's fixed cost occurs once a block.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from ..frame import LOGGED_LANE, NOT_MEASURED, UNTIMED_LANE, FrameRun, Layout, Nanoseconds, Phase, StepFrame
from ..summary import Row
from .rows import RowKey, step_rows
from .table import UNKNOWN, Table

BLOCK_STEPS: Final = 64
"""Steps of one layout that are added to the statistics together."""
MAX_BLOCKS: Final = 32
"""Layouts with a block of their own. Beyond that all blocks are added and dropped, so memory stays bounded."""
MAX_ROWS: Final = 4096
"""Rows with statistics of their own, in case names are made up anew each step. Further rows are only counted."""

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

    def add_run(self, run: FrameRun, begin: int) -> int:
        """Copy steps of a plain run, from the step ``begin`` on, as many as there is room for; return their number."""
        at = self.count
        count = min(len(run.steps) - begin, BLOCK_STEPS - at)
        rows = run.total_ns[begin : begin + count]
        self.total[at : at + count] = rows
        if self.host is not None:
            self.host[at : at + count] = rows
        self.steps[at : at + count] = run.duration_ns[begin : begin + count]
        self.last_step = run.steps[begin + count - 1]
        self.count = at + count
        return count


class CutStatistics:
    """Rows, phases and lengths of the steps of one cut. Children + self = parent: every row rests on the same steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.dropped: Counter[str] = Counter()
        self.phases: Counter[Phase] = Counter()
        self.micro_steps = Counter[int]()
        self.table = Table()
        self.table.row(_WHOLE_STEP, None, None)
        self._blocks: dict[Layout, _Block] = {}

    def add(self, frame: StepFrame) -> None:
        """Add one frame of this cut."""
        self.steps += 1
        if frame.micro_steps is not None:
            self.micro_steps[frame.micro_steps] += 1
        if frame.model_ns:
            self.phases.update(frame.model_ns)
        block = self._blocks.get(frame.layout) or self._open_block(frame.layout)
        block.add(frame)
        if frame.memory_start_bytes is not None and frame.memory_end_bytes is not None:
            self.add_memory(frame)
            self._add_growth(block, frame.memory_start_bytes, frame.memory_end_bytes)
        if block.count == BLOCK_STEPS:
            self._add_block(block)

    def add_run(self, run: FrameRun) -> None:
        """Add the frames of a plain run of this cut."""
        count = len(run.steps)
        self.steps += count
        if run.micro_steps is not None:
            self.micro_steps[run.micro_steps] += count
        for phase, column in run.model_ns.items():
            self.phases[phase] += sum(column)
        block, added = self._blocks.get(run.layout) or self._open_block(run.layout), 0
        if count >= BLOCK_STEPS:
            if block.count:
                self._add_block(block)
            steps_ns = np.array(run.duration_ns, dtype=np.int64)
            self._add_steps(block, run.total_ns, steps_ns, run.steps[-1])
            return
        while added < count:
            added += block.add_run(run, added)
            if block.count == BLOCK_STEPS:
                self._add_block(block)

    def _open_block(self, layout: Layout) -> _Block:
        if len(self._blocks) >= MAX_BLOCKS:
            self.flush()
            self._blocks.clear()
        rows, table = step_rows(layout), self.table
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

    def flush(self) -> None:
        """Add the steps of all blocks to the statistics, so that every number is current."""
        for block in self._blocks.values():
            if block.count:
                self._add_block(block)

    def _add_block(self, block: _Block) -> None:
        count, host, host_bound = block.count, block.host, block.host_bound
        block.count = 0
        self._add_steps(
            block,
            block.total[:count],
            block.steps[:count],
            block.last_step,
            None if host is None else host[:count],
            None if host_bound is None else host_bound[:count],
        )
        if host_bound is not None:
            host_bound[:count] = 0

    def _add_steps(
        self,
        block: _Block,
        total: Nanoseconds,
        steps_ns: Nanoseconds,
        last_step: int,
        host: Nanoseconds | None = None,
        host_bound: Nanoseconds | None = None,
    ) -> None:
        """Add steps of a block's layout: their spans (steps × spans), on the device too where ``host`` is given."""
        rows, table = block.rows, self.table
        self_ns = block.layout.self_ns(total)
        for phase, spans in block.layout.phase_groups:
            self.phases[phase] += int(self_ns[:, spans].sum())
        table.add_steps(_STEP_ROW, steps_ns[:, None], last_step)
        totals = rows.totals(total)
        hosts = totals if host is None else rows.totals(host)
        kept = block.row_of >= 0
        into = block.row_of[kept]
        table.add_steps(into, totals[:, kept], last_step)
        table.self_time[into] += rows.sums(self_ns).sum(axis=0)[kept]
        table.host[into] += hosts.sum(axis=0)[kept]
        table.calls[into] += rows.calls[kept] * len(total)
        if host_bound is not None:
            table.host_bound[into] += rows.totals(host_bound).sum(axis=0)[kept]

    def add_memory(self, frame: StepFrame) -> None:
        """Add the bytes of a frame's spans, of a warm-up step too."""
        if frame.memory_start_bytes is not None and frame.memory_end_bytes is not None:
            block = self._blocks.get(frame.layout) or self._open_block(frame.layout)
            self.table.add_memory(block.row_of[block.rows.of_span], frame)

    def _add_growth(self, block: _Block, start: Nanoseconds, end: Nanoseconds) -> None:
        seen = (start != NOT_MEASURED) & (end != NOT_MEASURED)
        growth = block.rows.totals(np.where(seen, end - start, 0))
        kept = block.row_of >= 0
        into = block.row_of[kept]
        measured = block.rows.totals(seen.astype(np.int64))[kept] > 0
        into = into[measured]
        self.table.growth[into] = np.maximum(self.table.growth[into], growth[kept][measured])

    def rows(self, p50: Nanoseconds, p95: Nanoseconds, *, on_device: bool) -> list[Row]:
        """Return the rows, in descending order of total time."""
        # Whole columns instead of single elements: a live display asks for the rows twice a second.
        table, used, watched = self.table, len(self.table.index), self.steps
        step_ns = int(table.total[0])
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
            self._host_bound_shares(used, on_device=on_device),
            _measured(table.peak_bound[:used]),
            _measured(table.reserved[:used]),
            [watched] * used,
        )
        # without the whole step, and rows seen in warm-up only
        return sorted(
            (row for row in list(rows)[1:] if row.steps), key=lambda row: (-row.total_ns, row.name, row.phase)
        )

    def _host_bound_shares(self, used: int, *, on_device: bool) -> list[float | None]:
        """Return the host-bound share of each row's device time; None where there is no device time."""
        table, keys = self.table, self.table.index
        if not on_device:
            return [None] * used
        shares = (table.host_bound[:used] / np.maximum(table.total[:used], 1)).tolist()
        return [None if key.lane == LOGGED_LANE else share for key, share in zip(keys, shares, strict=True)]


def _measured(column: Nanoseconds) -> list[int | None]:
    return [None if value in (NOT_MEASURED, UNKNOWN) else value for value in column.tolist()]
