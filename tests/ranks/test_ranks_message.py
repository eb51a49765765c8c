"""A rank's message: bounded in size, and the same steps from ranks that send at different times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoprof._ranks.message import (
    MESSAGE_ROWS,
    MESSAGE_STEPS,
    Message,
    choose_steps,
    decode,
    encode,
    keep_largest,
)
from autoprof._ranks.record import OUTSIDE_ROW, WAIT_ROWS, RankRecord, SpanKey
from autoprof.frame import Phase

MS = 1_000_000


def make_record(steps: range, rows: dict[SpanKey, int]) -> RankRecord:
    """Return a record in which each row takes so many milliseconds, and a nanosecond more in each further step."""
    numbers = np.arange(steps.start, steps.stop)
    times = {key: ms * MS + numbers for key, ms in rows.items()}
    own = sum(times.values(), np.zeros(len(numbers), dtype=np.int64))
    tokens = np.where(numbers % 2, 512.0, np.nan)
    parents = {("encoder", Phase.FORWARD): ("model", Phase.FORWARD), ("model", Phase.FORWARD): ("gone", Phase.FORWARD)}
    inside = {key: parent for key, parent in parents.items() if key in times and parent in times}
    return RankRecord(numbers, own + 5 * MS, own, times, inside, {"tokens": tokens} if len(numbers) else {})


ROWS: dict[SpanKey, int] = {
    ("encoder", Phase.FORWARD): 30,
    ("encoder", Phase.BACKWARD): 60,
    ("Data", Phase.DATA): 1,
    ("model", Phase.FORWARD): 2,
}


def test_a_message_brings_the_steps_over() -> None:
    """Steps, lengths, own work, rows and scalars, exactly."""
    record = make_record(range(1, 21), ROWS)
    message = decode(encode(Message(3, 77, 4, 0.25, True, record)))
    assert message[:5] == (3, 77, 4, 0.25, True)
    received = message.record
    assert received.steps.tolist() == record.steps.tolist()
    assert received.step_ns.tolist() == record.step_ns.tolist()
    assert received.own_ns.tolist() == record.own_ns.tolist()
    assert {key: ns.tolist() for key, ns in received.rows.items()} == {k: ns.tolist() for k, ns in record.rows.items()}
    assert received.parents == record.parents
    assert received.scalars.keys() == {"tokens"}
    assert received.scalars["tokens"] == pytest.approx(record.scalars["tokens"], nan_ok=True)


def test_a_row_that_is_left_out_is_part_of_the_row_around_it() -> None:
    """Over rows that are left out, too; a module in no row is outside of all spans."""
    rows: dict[SpanKey, int] = {(f"layer{at}", Phase.FORWARD): 9 for at in range(MESSAGE_ROWS - 2)}
    root, middle, leaf, alone = ((name, Phase.FORWARD) for name in ("root", "a", "b", "c"))
    record = make_record(range(1, 5), rows | {root: 20, middle: 2, leaf: 1, alone: 3, OUTSIDE_ROW: 5})
    kept = keep_largest(replace(record, parents={leaf: middle, middle: root}))
    assert len(kept.rows) == MESSAGE_ROWS
    assert kept.rows.keys() == rows.keys() | {root, OUTSIDE_ROW}
    assert kept.rows[root].tolist() == sum(record.rows[key] for key in (root, middle, leaf)).tolist()  # type: ignore[union-attr]
    assert kept.rows[OUTSIDE_ROW].tolist() == (record.rows[OUTSIDE_ROW] + record.rows[alone]).tolist()


def test_ranks_that_send_at_different_times_choose_the_same_steps() -> None:
    """Of 100 steps and of 150, half a second later: most of the chosen ones are common."""
    early, late = choose_steps(np.arange(1, 101)), choose_steps(np.arange(1, 151))
    assert len(early) == len(late) == MESSAGE_STEPS
    assert len(np.intersect1d(early, late)) >= 18
    assert sorted(late.tolist()) == late.tolist()


def test_the_rows_of_waits_are_always_sent() -> None:
    """However small they are beside the modules: they say which rank waits."""
    rows: dict[SpanKey, int] = {(f"layer{at}", Phase.FORWARD): 9 for at in range(MESSAGE_ROWS)}
    sent = keep_largest(make_record(range(1, 5), rows | dict.fromkeys(WAIT_ROWS, 0))).rows
    assert sent.keys() >= WAIT_ROWS
    assert len(sent) == MESSAGE_ROWS
