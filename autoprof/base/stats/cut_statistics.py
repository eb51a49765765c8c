"""Statistics of the steps that were recorded with the same targets, a cut through the tree of modules.

The rows of a layout are found once (``rows``). The steps of one layout are collected in a block and then added to the
statistics (``table``) together: the arithmetic's fixed cost occurs once a block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ..frame import LOGGED_LANE, NOT_MEASURED, UNTIMED_LANE, FrameRun, Layout, Nanoseconds, Phase, StepFrame
from ..summary import Row
from .members import MemberPlaces, MemberTimes
from .rows import RowKey, step_rows
from .table import NEVER, Table

MAX_ROWS: Final = 4096
"""Rows with statistics of their own, in case names are made up anew each step. Further rows are only counted."""

_STEP_ROW: Final = np.zeros(1, dtype=np.int64)


class _Steps(NamedTuple):
    """Steps in a row: the times of their spans (steps × spans), and their lengths; ``host_bound`` of device times."""

    total: Nanoseconds
    lengths: Sequence[int]
    host_bound: Nanoseconds | None = None


class _Block:
    """Steps of one layout that are not yet in the statistics.

    ``into`` are the table's rows of the ``kept`` rows of the layout; ``row_of`` has -1 for the others.
    """

    def __init__(self, layout: Layout, row_of: Nanoseconds, members: MemberPlaces | None) -> None:
        self.layout = layout
        self.members = members
        self.rows = step_rows(layout)
        self.row_of = row_of
        self.kept = row_of >= 0
        self.into = row_of[self.kept]
        self.count = 0
        self.waiting: list[_Steps] = []

    def take(self) -> tuple[Nanoseconds, Nanoseconds, Nanoseconds | None]:
        """Return the totals, lengths and host-bound times of the steps, which wait no longer."""
        waiting, self.waiting, self.count = self.waiting, [], 0
        total = waiting[0].total if len(waiting) == 1 else np.concatenate([one.total for one in waiting])
        bounds = [one.host_bound for one in waiting if one.host_bound is not None]
        lengths = np.concatenate([one.lengths for one in waiting])
        return total, lengths, np.concatenate(bounds) if bounds else None


class CutStatistics:
    """Rows, phases and lengths of the steps of one cut. Children + self = parent: every row rests on the same steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.dropped: Counter[str] = Counter()
        self.phases: Counter[Phase] = Counter()
        self.table = Table()
        self._members = MemberTimes()
        self.table.row(RowKey("", Phase.OTHER, 0), None, None)
        self._blocks: dict[Layout, _Block] = {}

    def add_run(self, run: FrameRun) -> None:
        """Add the frames of a run of this cut."""
        count = len(run.steps)
        self.steps += count
        for phase, column in run.model_ns.items():
            self.phases[phase] += sum(column)
        block = self._block(run.layout)
        block.waiting.append(_Steps(run.total_ns, run.step_ns, run.host_bound_ns))
        block.count += count
        if block.count >= 64:
            self._add_block(block)
        self.add_memory(run, growth=True)

    def _block(self, layout: Layout) -> _Block:
        return self._blocks.get(layout) or self._open_block(layout)

    def _open_block(self, layout: Layout) -> _Block:
        # Layouts with a block of their own. Beyond that all blocks are added and dropped, so memory stays bounded.
        if len(self._blocks) >= 32:
            self.flush()
            self._blocks.clear()
        rows, table = step_rows(layout), self.table
        row_of = np.full(len(rows.keys), -1, dtype=np.int64)
        for i, key in enumerate(rows.keys):
            if key.lane == UNTIMED_LANE:  # counted by its reason where it was found
                continue
            if key not in table.index and len(table.index) >= MAX_ROWS:
                self.dropped["names beyond the limit"] += 1
                continue
            parent = rows.parents[i]
            row_of[i] = table.row(key, rows.fqns[i], rows.keys[parent] if parent >= 0 else None)
        block = self._blocks[layout] = _Block(layout, row_of, self._members.places(layout))
        return block

    def flush(self) -> None:
        """Add the steps of all blocks to the statistics, so that every number is current."""
        for block in self._blocks.values():
            if block.count:
                self._add_block(block)

    def _add_block(self, block: _Block) -> None:
        total, lengths, host_bound = block.take()
        rows, table, kept, into = block.rows, self.table, block.kept, block.into
        self_ns = block.layout.self_ns(total)
        for phase, spans in block.layout.phase_groups:
            self.phases[phase] += int(self_ns[:, spans].sum())
        table.add_steps(_STEP_ROW, lengths[:, None])
        totals = rows.totals(total)
        table.add_steps(into, totals[:, kept])
        table.self_time[into] += rows.sums(self_ns).sum(axis=0)[kept]
        table.calls[into] += rows.calls[kept] * len(total)
        if block.members is not None:
            self._members.add(block.members, total)
        if host_bound is not None:
            table.host_bound[into] += rows.totals(host_bound).sum(axis=0)[kept]

    def add_memory(self, run: FrameRun, *, growth: bool = False) -> None:
        """Add the bytes of the spans of a run, where they were read."""
        for frame in run.frames if run.has_memory else ():
            block = self._block(frame.layout)
            self.table.add_memory(block.row_of[block.rows.of_span], frame)
            if growth:
                self._add_growth(block, frame)

    def _add_growth(self, block: _Block, frame: StepFrame) -> None:
        start, end = frame.memory_start_bytes, frame.memory_end_bytes
        assert start is not None
        assert end is not None
        seen = (start != NOT_MEASURED) & (end != NOT_MEASURED)
        growth = block.rows.totals(np.where(seen, end - start, 0))
        measured = block.rows.totals(seen.astype(np.int64))[block.kept] > 0
        into = block.into[measured]
        self.table.growth[into] = np.maximum(self.table.growth[into], growth[block.kept][measured])

    def rows(self, p50: Nanoseconds, p95: Nanoseconds, *, on_device: bool) -> list[Row]:
        """Return the rows, in descending order of total time."""
        # Whole columns instead of single elements: a live display asks for the rows twice a second.
        table, used = self.table, len(self.table.index)
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
            mean.tolist(),
            least.tolist(),
            table.max.tolist(),
            p50.tolist(),
            p95.tolist(),
            [ns / step_ns if step_ns else 0.0 for ns in total],
            [None if parent is None else parent.name for parent in table.parents],
            [key.lane for key in table.index],
            [None if growth == -NEVER else growth for growth in table.growth[:used].tolist()],
            [None if peak == NOT_MEASURED else peak for peak in table.peak[:used].tolist()],
            self._host_bound_shares(used, on_device=on_device),
            [None] * used,
            map(self._members.slowest().get, table.index),
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
