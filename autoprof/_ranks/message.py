"""The message of a rank: fixed in size, with the last recorded steps and the largest rows of its own work.

A row is sent as a hash of its name and phase; the names are a text of their own, sent again only where they change.
Ranks are compared row by row, so a rank whose rows are others, or lie in another order, is merged by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np

from ..frame import Nanoseconds, Phase
from .aligned import row_around
from .record import OUTSIDE_ROW, RANK_SCALARS, WAIT_ROWS, RankRecord, SpanKey

MESSAGE_STEPS: Final = 32
"""Steps in a message."""
MESSAGE_ROWS: Final = 64
"""Rows in a message, the largest ones; they include the time of the rows inside them that are left out."""
VERSION: Final = 3
SCALE: Final = 2**16 - 1
"""A row's times are sent in parts of its longest one: an error of 0.001 % of it."""
GOLDEN: Final = 0x9E3779B97F4A7C15
"""The fractional part of the golden ratio, times 2^64."""

_MESSAGE: Final = np.dtype(
    [
        ("version", "<u4"),
        ("rank", "<u4"),
        ("serial", "<u4"),
        ("pid", "<u4"),
        ("host", "<u8"),
        ("rate", "<f8"),
        ("closing", "<u2"),
        ("steps", "<u2"),
        ("rows", "<u2"),
        ("names", "<u2"),
        ("step", "<i8", (MESSAGE_STEPS,)),
        ("step_ns", "<i8", (MESSAGE_STEPS,)),
        ("own_ns", "<i8", (MESSAGE_STEPS,)),
        ("hash", "<u8", (MESSAGE_ROWS,)),
        ("longest_ns", "<f8", (MESSAGE_ROWS,)),
        ("part", "<u2", (MESSAGE_ROWS, MESSAGE_STEPS)),
        ("scalar", "<f4", (len(RANK_SCALARS), MESSAGE_STEPS)),
    ]
)
MESSAGE_BYTES: Final = _MESSAGE.itemsize


@dataclass(frozen=True, slots=True)
class Sender:
    """The process of a rank: ``host`` is the same number for all processes that can see each other's ids."""

    rank: int
    pid: int = 0
    host: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A message received. ``serial`` counts those of its rank; ``closing``: it is the last one.

    ``names`` is the number of the text that has the names of its rows.
    """

    sender: Sender
    serial: int
    rate: float
    closing: bool
    names: int
    hashes: tuple[int, ...]
    _fields: Any

    @property
    def steps(self) -> Nanoseconds:
        """The numbers of the steps sent."""
        steps: Nanoseconds = self._fields["step"][: self._fields["steps"]]
        return steps

    def record(self, names: RowNames) -> RankRecord:
        """Return the steps sent; rows without a known name are left out."""
        fields, count = self._fields, int(self._fields["steps"])
        times = fields["part"][: len(self.hashes), :count] * (fields["longest_ns"][: len(self.hashes), None] / SCALE)
        rows = {
            names.rows[number]: times[at].round().astype(np.int64)
            for at, number in enumerate(self.hashes)
            if number in names.rows
        }
        values = fields["scalar"][:, :count].astype(np.float64)
        scalars = {name: row for name, row in zip(RANK_SCALARS, values, strict=True) if not np.isnan(row).all()}
        parents = {key: parent for key, parent in names.parents.items() if key in rows and parent in rows}
        return RankRecord(
            fields["step"][:count], fields["step_ns"][:count], fields["own_ns"][:count], rows, parents, scalars
        )


def encode(sender: Sender, record: RankRecord, serial: int, rate: float, *, closing: bool, names: int = 0) -> bytes:
    """Return the message of ``MESSAGE_BYTES``; of a longer record it has the steps of ``choose_steps``."""
    record = keep_largest(record.select(choose_steps(record.steps)))
    fields = np.zeros((), dtype=_MESSAGE)
    keys = largest_rows(record)
    for name, value in (
        ("version", VERSION),
        ("rank", sender.rank),
        ("serial", serial),
        ("pid", sender.pid),
        ("host", sender.host),
        ("rate", rate),
        ("closing", closing),
        ("steps", len(record.steps)),
        ("rows", len(keys)),
        ("names", names % 2**16),
    ):
        fields[name] = value
    count = len(record.steps)
    fields["step"][:count] = record.steps
    fields["step_ns"][:count] = record.step_ns
    fields["own_ns"][:count] = record.own_ns
    for at, key in enumerate(keys):
        times = record.rows[key]
        longest = max(int(times.max(initial=0)), 1)
        fields["hash"][at] = row_hash(key)
        fields["longest_ns"][at] = longest
        fields["part"][at, :count] = np.clip(times * (SCALE / longest), 0, SCALE).round()
    for at, name in enumerate(RANK_SCALARS):
        fields["scalar"][at, :count] = record.scalars.get(name, np.nan)
    return fields.tobytes()


def decode(data: bytes) -> Message:
    """Read a message. Raises ``ValueError`` where it is none, or of another version."""
    if len(data) != MESSAGE_BYTES:
        raise ValueError(f"a message has {len(data)} bytes; it must have {MESSAGE_BYTES}")
    fields = np.frombuffer(data, dtype=_MESSAGE)[0]
    if fields["version"] != VERSION or fields["steps"] > MESSAGE_STEPS or fields["rows"] > MESSAGE_ROWS:
        raise ValueError(f"a message is of version {fields['version']}; it must be of {VERSION}")
    return Message(
        Sender(int(fields["rank"]), int(fields["pid"]), int(fields["host"])),
        int(fields["serial"]),
        float(fields["rate"]),
        bool(fields["closing"]),
        int(fields["names"]),
        tuple(fields["hash"][: fields["rows"]].tolist()),
        fields,
    )


def decode_all(data: bytes) -> list[Message]:
    """Read several messages, one behind the other. Raises ``ValueError`` where they are none."""
    return [decode(data[at : at + MESSAGE_BYTES]) for at in range(0, len(data), MESSAGE_BYTES)]


def largest_rows(record: RankRecord) -> list[SpanKey]:
    """Return the rows that a message of this record has: those of waits, and the largest others."""
    return sorted(record.rows, key=lambda key: (key not in WAIT_ROWS, -int(record.rows[key].sum()), key))[:MESSAGE_ROWS]


def keep_largest(record: RankRecord) -> RankRecord:
    """Return the record with the rows of a message alone; the time of each other row is in the nearest one around it.

    Without one, time of modules is in the row outside of all spans, as in ``align_rows``; that of other rows is lost.
    """
    kept = largest_rows(record)
    if len(kept) == len(record.rows):
        return record
    rows = {key: record.rows[key] for key in kept}
    for key in record.rows.keys() - rows.keys():
        base = row_around(key, record.parents, rows)
        if base in rows:
            rows[base] = rows[base] + record.rows[key]
    around = {key: row_around(key, record.parents, rows) for key in rows}
    parents = {key: base for key, base in around.items() if base in rows and base not in (key, OUTSIDE_ROW)}
    return replace(record, rows=rows, parents=parents)


def choose_steps(steps: Nanoseconds, count: int = MESSAGE_STEPS) -> Nanoseconds:
    """Return at most ``count`` of these steps, chosen by their numbers.

    Ranks send at different times. Of two overlapping ranges of steps, each rank then chooses mostly the same ones.
    """
    if len(steps) <= count:
        return steps
    order = np.argsort(steps.astype(np.uint64) * np.uint64(GOLDEN), kind="stable")
    return np.sort(steps[order[:count]])


def row_hash(key: SpanKey) -> int:
    """Return the number of 64 bits that stands for a row, the same in every process."""
    name, phase = key
    return int.from_bytes(blake2b(f"{phase}\0{name}".encode(), digest_size=8).digest(), "little")


class RowNames(NamedTuple):
    """The rows of a rank by their hashes, and the row around each where it is in one."""

    rows: Mapping[int, SpanKey]
    parents: Mapping[SpanKey, SpanKey]


NO_NAMES: Final = RowNames({}, {})


def encode_names(record: RankRecord) -> bytes:
    """Return the text with the names of the rows that a message of this record has, in an order of its own."""
    return json.dumps([[*key, *record.parents.get(key, ())] for key in sorted(largest_rows(record))]).encode()


def decode_names(data: bytes) -> RowNames:
    """Read a text of names. Raises ``ValueError`` where it is none."""
    rows = json.loads(data)
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise ValueError("a text of names is not a list of names with phases")
    keys: list[SpanKey] = [(row[0], Phase.add(row[1])) for row in rows]
    parents = {key: (row[2], Phase.add(row[3])) for key, row in zip(keys, rows, strict=True) if len(row) == 4}
    return RowNames({row_hash(key): key for key in keys}, parents)


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and len(row) in (2, 4) and all(isinstance(one, str) for one in row)
