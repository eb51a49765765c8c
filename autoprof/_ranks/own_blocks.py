"""The own work of one rank in chosen steps, from the blocks of its records: many steps at a time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._storage.records import part_names
from .._storage.span_blocks import BlockReader
from .._storage.steps_jsonl import BAD_LINE
from ..frame import Layout, Nanoseconds, Phase
from .record import OUTSIDE_ROW, RankRecord, SpanKey, own_rows, parent_rows, wait_rows
from .step_heads import StepHeads


class RowSums(NamedTuple):
    """The self times of a layout's spans, summed by row; the rows' spans lie behind each other in ``columns``."""

    columns: Nanoseconds
    starts: Nanoseconds
    keys: tuple[SpanKey, ...]

    @classmethod
    def of(cls, spans: Iterable[tuple[int, SpanKey]]) -> RowSums:
        """Return the sums of spans, each with its row."""
        by_key: dict[SpanKey, list[int]] = {}
        for column, key in spans:
            by_key.setdefault(key, []).append(column)
        columns = [column for own in by_key.values() for column in own]
        starts = np.cumsum([0, *map(len, by_key.values())])[:-1]
        return cls(np.array(columns, dtype=np.int64), starts.astype(np.int64), tuple(by_key))

    def sum(self, self_ns: Nanoseconds) -> Nanoseconds:
        """Return the sums (steps × rows) of self times (steps × spans)."""
        if not self.keys:
            return np.zeros((len(self_ns), 0), dtype=np.int64)
        found: Nanoseconds = np.add.reduceat(self_ns[:, self.columns], self.starts, axis=1)
        return found


@dataclass(frozen=True, slots=True)
class LayoutRows:
    """The rows of a layout: those of a rank's own work, those in which it may wait, and the row around each."""

    layout: Layout
    own: RowSums
    waits: RowSums
    parents: Mapping[SpanKey, SpanKey]

    @classmethod
    def of(cls, layout: Layout) -> LayoutRows:
        """Return those of a layout."""
        own, waits = RowSums.of(own_rows(layout)), RowSums.of(wait_rows(layout))
        return cls(layout, own, waits, parent_rows(layout))

    def all(self) -> tuple[SpanKey, ...]:
        """Return all rows."""
        return self.own.keys + self.waits.keys


def spans_file(lines_file: str) -> str:
    """Return the name of the file with the blocks of a file of lines."""
    folder, _, name = lines_file.rpartition("/")
    number = name.split(".")[1]
    return f"{folder}/{part_names(0 if number == 'jsonl' else int(number))[1]}"


def read_own_work(
    heads: StepHeads, steps: Nanoseconds, blobs: Mapping[str, bytes], layouts: Sequence[LayoutRows]
) -> tuple[RankRecord, int]:
    """Return a rank's own work in those of ``steps`` whose times are whole, and the number of the others.

    ``layouts`` has the rows of each layout, by its number. The result is that of ``OwnWork`` on the same steps.
    """
    readers = {name: BlockReader(Path(name), blob) for name, blob in blobs.items()}
    at = np.flatnonzero(np.isin(heads.steps, steps, assume_unique=True))
    rows: defaultdict[SpanKey, Nanoseconds] = defaultdict(lambda: np.zeros(len(at), dtype=np.int64))
    parents: dict[SpanKey, SpanKey] = {}
    is_read = np.zeros(len(at), dtype=bool)
    own_ns = np.zeros(len(at), dtype=np.int64)
    outside_ns = heads.step_ns[at] - heads.overhead_ns[at]
    groups = np.stack([heads.file[at], heads.layout[at], heads.block[at], heads.on_device[at]])
    distinct, inverse = np.unique(groups, axis=1, return_inverse=True)
    for number, (file, layout, block, on_device) in enumerate(distinct.T.tolist()):
        among = np.flatnonzero(inverse.ravel() == number)
        found = layouts[layout]
        try:
            places = heads.place[at[among]]
            if block < 0:
                total_ns = _inline_totals(heads, places, found.layout, bool(on_device))
            else:
                reader = readers[spans_file(heads.files[file])]
                total_ns = _totals(reader.block(block, found.layout), places, bool(on_device))
        except (*BAD_LINE, IndexError):
            continue
        is_read[among] = True
        parents.update(found.parents)
        self_ns = found.layout.self_ns(total_ns)
        for sums in (found.own, found.waits):
            by_row = sums.sum(self_ns)
            outside_ns[among] -= by_row.sum(axis=1)
            for column, key in enumerate(sums.keys):
                rows[key][among] += by_row[:, column]
            if sums is found.own:
                own_ns[among] += by_row.sum(axis=1)
    for phase, model_ns in heads.model_ns.items():
        ns = model_ns[at].clip(0)
        rows[f"({phase})", phase] += ns
        own_ns += 0 if phase is Phase.BACKWARD else ns
        outside_ns -= ns
    rows[OUTSIDE_ROW] = outside_ns.clip(0)
    kept = at[is_read]
    record = RankRecord(
        heads.steps[kept],
        heads.step_ns[kept],
        own_ns[is_read],
        {key: ns[is_read] for key, ns in rows.items()},
        parents,
        {name: values[kept] for name, values in heads.scalars.items()},
    )
    return record, int((~is_read).sum())


def _totals(block: Mapping[str, Nanoseconds], places: Nanoseconds, on_device: bool) -> Nanoseconds:
    """Return the total times of a block's rows (steps × spans), as ``StepFrame.total_ns`` has them."""
    total: Nanoseconds = block["device_ns"].clip(min=0) if on_device and "device_ns" in block else block["host_ns"]
    return total[places]


def _inline_totals(heads: StepHeads, places: Nanoseconds, layout: Layout, on_device: bool) -> Nanoseconds:
    rows = []
    for place in places.tolist():
        columns = {name: np.array(values, dtype=np.int64) for name, values in json.loads(heads.inline[place]).items()}
        if any(column.shape != (len(layout),) for column in columns.values()):
            raise ValueError("a line whose times do not fit its layout")
        rows.append(
            _totals({name: column[None] for name, column in columns.items()}, np.zeros(1, dtype=np.int64), on_device)[0]
        )
    return np.stack(rows)
