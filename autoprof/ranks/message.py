"""The message of a rank as JSON: its last recorded steps, and the largest rows of its own work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ..base.frame import Nanoseconds, Phase
from .aligned import row_around
from .record import OUTSIDE_ROW, WAIT_ROWS, RankRecord, SpanKey

MESSAGE_STEPS: Final = 32
"""Steps in a message; the last message of a rank has more."""
MESSAGE_ROWS: Final = 64
"""Rows in a message, the largest ones; they include the time of the rows inside them that are left out."""


class Message(NamedTuple):
    """The steps of a rank. ``serial`` counts its messages; ``closing``: it is the last one, with all kept steps."""

    rank: int
    pid: int
    serial: int
    rate: float
    closing: bool
    record: RankRecord


def encode(message: Message) -> bytes:
    """Return the text of a message."""
    record = message.record
    content = {
        **message._asdict(),
        "steps": record.steps.tolist(),
        "step_ns": record.step_ns.tolist(),
        "own_ns": record.own_ns.tolist(),
        "record": [[key, record.parents.get(key), ns.tolist()] for key, ns in record.rows.items()],
        "scalars": {name: values.tolist() for name, values in record.scalars.items()},
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """Read a message."""
    content = json.loads(data)
    steps, step_ns, own_ns = (np.array(content[name], dtype=np.int64) for name in ("steps", "step_ns", "own_ns"))
    rows: dict[SpanKey, Nanoseconds] = {}
    parents: dict[SpanKey, SpanKey] = {}
    for key, parent, ns in content["record"]:
        rows[_key(key)] = np.array(ns, dtype=np.int64)
        if parent is not None:
            parents[_key(key)] = _key(parent)
    scalars = {name: np.array(values, dtype=np.float64) for name, values in content["scalars"].items()}
    record = RankRecord(steps, step_ns, own_ns, rows, parents, scalars)
    head = {name: content[name] for name in ("rank", "pid", "serial", "rate", "closing")}
    return Message(**head, record=record)


def _key(key: Sequence[str]) -> SpanKey:
    return key[0], Phase.add(key[1])


def keep_largest(record: RankRecord) -> RankRecord:
    """Return the record with its waits and its largest rows; the time of each other row is in the nearest around it.

    Without one, time of modules is in the row outside of all spans, as in ``align_rows``; that of other rows is lost.
    """
    kept = sorted(record.rows, key=lambda key: (key not in WAIT_ROWS, -int(record.rows[key].sum()), key))[:MESSAGE_ROWS]
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
    # The fractional part of the golden ratio, times 2^64.
    order = np.argsort(steps.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), kind="stable")
    return np.sort(steps[order[:count]])
