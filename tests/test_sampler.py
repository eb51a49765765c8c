"""The budget: every step is recorded while it affords them, then fewer rows, then each k-th step."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from autoprof.base.frame import FrameRun
from autoprof.session.account import RECORDING, TABLE, Part
from autoprof.session.sampler import Sampler
from autoprof.testing import make_frame
from tests.accounts import FakeRun

US = 1_000
MS = 1_000_000
BUDGET = 0.01 / sum(TABLE[part].share for part in RECORDING)
"""The budget of which 1 % of the run's time is for recording."""


class FakeSampler(Sampler):
    """A sampler with the account of a run whose clocks only the test lets pass."""

    def __init__(self, budget: float | None = BUDGET, every: int = 1) -> None:
        self.run = FakeRun(budget)
        super().__init__(self.run.account, every)

    def record(self, own_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int | None = None) -> None:
        """Record a step of this cost; the steps up to the next recorded one are as long."""
        self.run.work(Part.STEPS, own_ns)
        self.run.now_ns += wall_ns
        self.close(own_ns, cpu_ns, wall_ns, marks_ns)


class Rows:
    """Rows with these marks in a step, the longest first, of which the first ``floor`` are never dropped."""

    def __init__(self, marks: Sequence[int], floor: int = 1) -> None:
        self.marks, self.floor, self.kept = list(marks), floor, len(marks)

    @property
    def present(self) -> int:
        return sum(self.marks[: self.kept])

    def fit(self, share: float) -> float:
        before, allowed = self.present, share * self.present
        while self.kept > self.floor and self.present > allowed:
            self.kept -= 1
        while self.kept < len(self.marks) and self.present + self.marks[self.kept] <= allowed:
            self.kept += 1
        return self.present / before


def run(
    sampler: FakeSampler,
    steps: int,
    step_ns: int,
    *,
    own_ns: int = 0,
    mark_ns: int = US,
    pass_ns: int = 0,
    pass_steps: int = 1,
    waits: float = 0.0,
    noise: random.Random | None = None,
) -> tuple[list[int], float]:
    """Return the recorded steps and the overhead of a run; ``noise`` is the load of other programs.

    A step waits for this part of its time. Recording costs ``own_ns`` and the marks, once in ``pass_steps`` a pass.
    """
    recorded, cost_ns, step, first = [], 0, 1, 1
    while step <= steps:
        recorded.append(step)
        marks = sampler.rows.present if isinstance(sampler.rows, Rows) else 0
        own = own_ns + marks * mark_ns
        if step // pass_steps > first // pass_steps or pass_steps == 1:
            sampler.spend_on_rows(pass_ns)
            cost_ns, first = cost_ns + pass_ns, step
        cost_ns += own
        cpu_ns = round((1 - waits) * step_ns)
        wall_ns = step_ns
        if noise is not None and noise.random() < 0.9:  # a step in ten is not interrupted
            wall_ns = round(step_ns * noise.uniform(1, 5))
        sampler.record(own, cpu_ns, wall_ns)
        skipped = sampler.gap(step)
        sampler.run.now_ns += skipped * step_ns
        step += 1 + skipped
    return recorded, cost_ns / (steps * step_ns)


def with_rows(*marks: int, budget: float | None = BUDGET, floor: int = 1) -> FakeSampler:
    """Return a sampler of rows with these marks in a step."""
    sampler = FakeSampler(budget)
    sampler.rows = Rows(marks, floor)
    return sampler


def device_run(waited_ns: int, events_ns: int) -> FrameRun:
    """Return a step in which the device waited so long for the host, and took so long for the events."""
    made = FrameRun.of(make_frame([]))
    made.waited_ns, made.events_ns = [waited_ns], events_ns
    return made


def kept(sampler: Sampler) -> int:
    """Return the number of rows that are recorded."""
    assert isinstance(sampler.rows, Rows)
    return sampler.rows.kept


def test_every_step_is_recorded_where_the_budget_affords_all_rows() -> None:
    """100 marks of a microsecond in steps of 20 ms are half of 1 %."""
    sampler = with_rows(50, 30, 20)
    assert run(sampler, 500, 20 * MS)[0] == list(range(1, 501))
    assert kept(sampler) == 3


def test_rows_that_hold_least_time_are_dropped_first_and_every_step_is_still_recorded() -> None:
    """Of 400 marks of a microsecond in steps of 20 ms, half are affordable."""
    sampler = with_rows(100, 60, 100, 140)
    recorded, _ = run(sampler, 500, 20 * MS)
    assert recorded == list(range(1, 501))
    assert kept(sampler) == 2


@pytest.mark.parametrize("step_ns", [20 * US, 200 * US, 700 * US])
def test_where_fewer_rows_are_not_enough_one_step_of_each_k_is_recorded(step_ns: int) -> None:
    """k is a power of two; over the run the overhead keeps the budget."""
    sampler = with_rows(10, 5, 5)
    recorded, overhead = run(sampler, 200_000, step_ns, own_ns=20 * US)
    k = sampler.k
    assert k == 2 ** (k.bit_length() - 1) > 1
    begin = -(-100_000 // k)
    late = [(step - 1) // k for step in recorded if step > begin * k]
    assert late[:-1] == list(range(begin, begin + len(late) - 1))
    assert begin + len(late) >= 200_000 // k
    assert 0.004 < overhead < 0.01 + 40 * MS / (200_000 * step_ns)  # and what it may cost at first


def test_decisions_are_the_same_on_a_busy_machine() -> None:
    """Other programs make most steps up to five times as long, and change neither marks nor processor time."""
    for marks, step_ns, own_ns, waits in (
        ((100, 60, 100, 140), 20 * MS, 0, 0.0),
        ((10, 5, 5), 200 * US, 20 * US, 0.0),
        ((10, 5, 5), 5 * MS, 20 * US, 0.8),
    ):
        quiet, busy = with_rows(*marks), with_rows(*marks)
        recorded, _ = run(quiet, 20_000, step_ns, own_ns=own_ns, waits=waits)
        beside, _ = run(busy, 20_000, step_ns, own_ns=own_ns, waits=waits, noise=random.Random(1))
        assert beside == recorded
        assert kept(busy) == kept(quiet)


def test_work_that_is_done_once_drops_nothing() -> None:
    """Counting FLOPs takes half a second of the seventh step."""
    sampler = with_rows(50, 50)
    for step in range(1, 400):
        sampler.record(100 * US + (500 * MS if step == 7 else 0), 20 * MS, 20 * MS)
        assert sampler.gap(step) == 0
    assert kept(sampler) == 2


def test_more_is_recorded_only_where_there_is_room() -> None:
    """Steps that become a little longer change nothing; those twice as long bring back steps, and later rows."""
    sampler = with_rows(10, 10, 10)
    run(sampler, 4_000, 400 * US)
    assert (sampler.k, kept(sampler)) == (4, 1)
    run(sampler, 4_000, 500 * US)
    assert (sampler.k, kept(sampler)) == (4, 1)
    run(sampler, 40_000, 1_600 * US)
    assert (sampler.k, kept(sampler)) == (1, 1)
    run(sampler, 40_000, 20 * MS)
    assert (sampler.k, kept(sampler)) == (1, 3)


def test_where_the_device_never_waits_for_the_host_recording_costs_its_own_time_for_the_events() -> None:
    """The host's 5 ms in steps of 70 ms are hidden; 463 events of 2 µs are not, but half of them are affordable."""
    sampler = with_rows(150, 150, 163)
    assert isinstance(sampler.rows, Rows)
    for step in range(1, 200):
        sampler.frames(device_run(waited_ns=20 * US, events_ns=2 * US * sampler.rows.present))
        sampler.record(5 * MS, 20 * MS, 70 * MS, 3 * MS)
        assert sampler.gap(step) == 0
    assert kept(sampler) == 2


def test_where_the_device_waits_for_the_host_recording_costs_the_hosts_work() -> None:
    """But no more than the device waits: of 2 ms at most half a millisecond makes a step of 20 ms longer."""
    waiting, queued = FakeSampler(), FakeSampler()
    for _ in range(200):
        for sampler, waited_ns in ((waiting, 15 * MS), (queued, MS // 2)):
            sampler.frames(device_run(waited_ns=waited_ns, events_ns=20 * US))
            sampler.record(2 * MS, 20 * MS, 20 * MS)
    assert (waiting.k, queued.k) == (16, 4)


def test_the_cost_of_passes_is_saved_by_fewer_rows() -> None:
    """Marks of 100 µs and passes of 300 µs in steps of 20 ms: half of the rows stay."""
    sampler = with_rows(10, 10)
    assert isinstance(sampler.rows, Rows)
    for _ in range(400):
        sampler.spend_on_rows(15 * US * sampler.rows.present)
        sampler.run.work(Part.STEPS, 15 * US * sampler.rows.present)
        sampler.record(5 * US * sampler.rows.present, 20 * MS, 20 * MS)
    assert (sampler.k, kept(sampler)) == (1, 1)


@pytest.mark.parametrize(("own_us", "whole"), [(300, 110), (1000, 16), (20_000, 1)])
def test_a_short_run_is_recorded_whole_until_it_has_cost_11_ms_more_than_the_budget(own_us: int, whole: int) -> None:
    """Steps of 20 ms may cost 200 µs each: 100 µs too much in each of 110 steps do no harm."""
    sampler = FakeSampler()
    recorded, _ = run(sampler, 1000, 20 * MS, own_ns=own_us * US)
    assert recorded[:whole] == list(range(1, whole + 1))
    assert len(recorded) < 1000


def test_without_a_budget_everything_is_recorded() -> None:
    """Whatever it costs."""
    sampler = with_rows(1_000, 1_000, budget=None)
    assert run(sampler, 300, 10 * US)[0] == list(range(1, 301))
    assert kept(sampler) == 2


def test_with_every_each_nth_step_is_recorded_from_the_first_one_on() -> None:
    """Without a budget just these; with one, each k-th of them."""
    assert run(FakeSampler(None, every=3), 14, MS)[0] == [1, 4, 7, 10, 13]
    sampler = FakeSampler(every=3)
    recorded, _ = run(sampler, 60_000, 200 * US, own_ns=30 * US)
    assert sampler.k > 1
    late = recorded[-20:]
    assert {after - before for before, after in pairwise(late)} == {3 * sampler.k}
    assert all(step % 3 == 1 for step in recorded)


def test_ranks_that_afford_different_parts_share_the_steps_of_the_largest_k() -> None:
    """And all record the same ones once they know each other's rate."""
    slow, fast = FakeSampler(), FakeSampler()
    few, _ = run(slow, 60_000, 200 * US, own_ns=60 * US)
    many, _ = run(fast, 60_000, 200 * US, own_ns=10 * US)
    late = [step for step in few if step > 30_000]
    assert slow.k > fast.k > 1
    assert set(late) < {step for step in many if step > 30_000}
    fast.agreed_rate, slow.agreed_rate = slow.affordable_rate, fast.affordable_rate
    assert [sampler.gap(step) for sampler in (slow, fast) for step in range(500)] == [
        slow.gap(step) for _ in range(2) for step in range(500)
    ]


def test_one_note_says_since_when_the_budget_leaves_steps_out() -> None:
    """However often it changes which ones are recorded."""
    sampler = FakeSampler()
    assert sampler.note_limit(10) is None
    sampler.k = 2
    assert sampler.note_limit(20) == "to keep the budget: from step 20 on, not every step is recorded"
    sampler.k = 8
    assert sampler.note_limit(52) is None


@pytest.mark.parametrize(
    ("marks", "own_us", "step_ms"),
    [(30_000, 2_000, 100), (1_200, 200, 80), (1_200, 200, 10), (90, 60, 10), (0, 500, 1)],
    ids=["10,000 modules", "an RNN of 400 cells", "a fast RNN", "a small model", "own work"],
)
def test_recording_60_steps_costs_at_most_1_percent_and_40_ms(marks: int, own_us: int, step_ms: int) -> None:
    """Marks of a microsecond in rows of the user's rules, which are not closed: few of these steps are recorded."""
    sampler = FakeSampler()
    cost_ns, step = 0, 1
    while step <= 60:
        own_ns = own_us * US + marks * US
        cost_ns += own_ns
        sampler.record(own_ns, step_ms * MS, step_ms * MS, marks * US)
        step += 1 + sampler.gap(step)
    assert cost_ns <= 0.01 * 60 * step_ms * MS + 40 * MS
