"""The account adds up what each part costs, and hands the budget out by a table."""

from __future__ import annotations

import threading
from math import inf
from typing import Any

import pytest

from autoprof.base.allowance import SAMPLED_CALLS
from autoprof.session.account import LONGEST_CALL_NS, TABLE, Part
from tests.accounts import FakeRun

MS = 1_000_000
SECOND = 1_000 * MS


def test_the_shares_of_the_parts_sum_to_one() -> None:
    """Every part but the start, which is paid before the run, has a share."""
    assert sum(share.share for share in TABLE.values()) == pytest.approx(1.0)
    assert set(TABLE) == set(Part) - {Part.START}


@pytest.mark.parametrize("seconds", [0.1, 0.6, 2.5, 10.0])
def test_a_run_of_any_length_may_cost_two_percent_or_50_ms(seconds: float) -> None:
    """All parts together, with what they may cost before the run has paid for it."""
    run = FakeRun()
    run.now_ns = round(seconds * SECOND)
    for part, share in TABLE.items():
        if not share.once:
            run.work(part, max(round(run.account.left_ns(part)), 0))
    for part in (Part.FOOTPRINT, Part.FLOPS):
        run.work(part, max(round(run.account.left_ns(part)), 0))
    assert run.processor_ns <= max(0.02 * run.now_ns, 50 * MS)


def test_each_nanosecond_is_counted_by_the_innermost_work() -> None:
    """A count of FLOPs inside a pass at the end of a step is not counted twice."""
    run = FakeRun()
    work = run.account.work
    with work(Part.STEPS):
        run.processor_ns += 1
        with work(Part.PASSES):
            run.processor_ns += 10
            with work(Part.FLOPS):
                run.processor_ns += 100
            run.processor_ns += 1_000
        run.processor_ns += 10_000
    run.processor_ns += 7_000_000  # the program's own
    spent = {part: run.account.spent_ns(part) for part in (Part.STEPS, Part.PASSES, Part.FLOPS)}
    assert spent == {Part.STEPS: 10_001, Part.PASSES: 1_010, Part.FLOPS: 100}
    assert run.account.metered_ns == 11_111


def test_an_exception_ends_the_work_that_it_leaves() -> None:
    """Also where it leaves a generator inside, whose own end comes later."""
    run = FakeRun()

    def fail() -> None:
        with run.account.work(Part.PASSES):
            run.account.work(Part.FLOPS).__enter__()
            run.processor_ns += 5
            raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        fail()
    run.processor_ns += MS
    run.work(Part.STEPS, 3)
    assert (run.account.spent_ns(Part.PASSES), run.account.spent_ns(Part.FLOPS), run.account.metered_ns) == (0, 5, 8)


def test_a_sampled_call_stands_for_many() -> None:
    """One that takes much longer than others does not: it has collected garbage."""
    run = FakeRun()
    allowance = run.account.part(Part.STEPS)
    for ns in (1_000, 40 * MS):
        with allowance.sampled():
            run.processor_ns += ns
    assert allowance.spent_ns == SAMPLED_CALLS * (1_000 + LONGEST_CALL_NS)


def test_work_on_another_thread_is_counted_whole() -> None:
    """Its processor time is not that of the training thread."""
    run = FakeRun()

    def work() -> None:
        run.work(Part.RANKS, 20)

    with run.account.work(Part.STEPS):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert run.account.spent_ns(Part.RANKS) == 20


def test_a_part_that_has_spent_its_share_pauses_until_the_run_has_paid_for_it() -> None:
    """A pass of 50 ms is 38 ms more than passes may cost at first: at 0.2 % that takes 19 s."""
    run = FakeRun()
    passes = run.account.part(Part.PASSES)
    assert passes.pause_ns() == 0
    run.work(Part.PASSES, 50 * MS)
    pause_ns = passes.pause_ns()
    assert pause_ns == 19 * SECOND
    run.now_ns += pause_ns
    assert passes.pause_ns() == 0


def test_work_that_is_done_once_may_spend_the_rest_of_the_others() -> None:
    """Of 10 s at 1 % a count may take 100 ms; the others have their shares all the same."""
    run = FakeRun()
    run.now_ns = 10 * SECOND
    flops = run.account.part(Part.FLOPS)
    assert flops.affords(100 * MS)
    assert not flops.affords(100 * MS + 1)
    run.work(Part.FLOPS, 100 * MS)
    assert not flops.affords(1)
    own_ns = TABLE[Part.MARKS].share * 100 * MS + TABLE[Part.MARKS].first_ns
    assert run.account.left_ns(Part.MARKS) == pytest.approx(own_ns)


def test_the_end_may_take_two_seconds_in_any_run() -> None:
    """A run of no length has it, too, and one that has overdrawn its budget."""
    run = FakeRun()
    end = run.account.part(Part.END)
    run.work(Part.PASSES, 100 * MS)
    assert end.affords(2050 * MS)
    run.work(Part.END, 100 * MS)
    assert not end.affords(1951 * MS)


@pytest.mark.parametrize("part", TABLE)
def test_without_a_budget_no_part_is_limited(part: Part) -> None:
    """Whatever it has cost."""
    run = FakeRun(None)
    run.work(part, 1_000 * SECOND)
    allowance: Any = run.account.part(part)
    assert allowance.affords(1_000 * SECOND)
    assert allowance.pause_ns() == 0
    assert run.account.rate(part) == inf
