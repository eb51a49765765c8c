"""The message of a rank as JSON: its last recorded steps, and the largest rows of its own work."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from ..frame import Nanoseconds, Phase
from .aligned import row_around
from .record import OUTSIDE_ROW, WAIT_ROWS, RankRecord, SpanKey

MESSAGE_STEPS: Final = 32
"""Steps in a message; the last message of a rank has more."""
MESSAGE_ROWS: Final = 64
"""Rows in a message, the largest ones; they include the time of the rows inside them that are left out."""
VERSION: Final = 4


class Sender(NamedTuple):
    """The process of a rank: ``host`` is the same number for all processes that can see each other's ids."""

    rank: int
    pid: int = 0
    host: int = 0


class Message(NamedTuple):
    """The steps of a rank. ``serial`` counts its messages; ``closing``: it is the last one, with all kept steps."""

    sender: Sender
    serial: int
    rate: float
    closing: bool
    record: RankRecord


def encode(message: Message) -> bytes:
    """Return the text of a message."""
    record = message.record
    rows = [[*key, *record.parents.get(key, ())] for key in record.rows]
    content = {
        "version": VERSION,
        "sender": message.sender,
        "serial": message.serial,
        "rate": message.rate,
        "closing": message.closing,
        "steps": record.steps.tolist(),
        "step_ns": record.step_ns.tolist(),
        "own_ns": record.own_ns.tolist(),
        "rows": rows,
        "times": [ns.tolist() for ns in record.rows.values()],
        "scalars": {name: values.tolist() for name, values in record.scalars.items()},
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """Read a message. Raises ``ValueError`` where it is none, or of another version."""
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise ValueError(f"a message is of version {content['version']}; it must be of {VERSION}")
        return Message(
            Sender(*map(int, content["sender"])),
            int(content["serial"]),
            float(content["rate"]),
            bool(content["closing"]),
            _decode_record(content),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"a message cannot be read ({type(error).__name__}: {error})") from error


def _decode_record(content: Any) -> RankRecord:
    steps, step_ns, own_ns = (np.array(content[name], dtype=np.int64) for name in ("steps", "step_ns", "own_ns"))
    keys: list[SpanKey] = [(str(row[0]), Phase.add(row[1])) for row in content["rows"]]
    parents = {
        key: (str(row[2]), Phase.add(row[3])) for key, row in zip(keys, content["rows"], strict=True) if len(row) == 4
    }
    times = np.array(content["times"], dtype=np.int64).reshape(len(keys), len(steps))
    scalars = {str(name): np.array(values, dtype=np.float64) for name, values in content["scalars"].items()}
    if not {len(steps)} >= {len(step_ns), len(own_ns), *map(len, scalars.values())}:
        raise ValueError("its columns differ in length")
    return RankRecord(steps, step_ns, own_ns, dict(zip(keys, times, strict=True)), parents, scalars)


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
    # The fractional part of the golden ratio, times 2^64.
    order = np.argsort(steps.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), kind="stable")
    return np.sort(steps[order[:count]])
