"""Sampling by itself: the cost of recorded steps, how gaps are counted, and which probes are attached."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from autoprof._capture import recorder as recording
from autoprof._capture.mark_cost import MarkCost
from autoprof._capture.other_threads import NO_OTHER_MARKS, OtherMarks
from autoprof._capture.recorder import Recorder
from autoprof._session import sampling
from autoprof._session.sampler import Sampler
from autoprof._session.sampling import Sampling, TargetSet
from autoprof.testing import FakeClock

MS = 1_000_000
S = 1_000_000_000


class Time:
    """The host's time and the thread's processor time, which only the test lets pass."""

    def __init__(self) -> None:
        self.ns = 7 * S
        self.cpu_ns = 3 * S


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    """Return the time that sampling reads; no recorder stays active."""
    time = Time()
    monkeypatch.setattr(sampling, "perf_counter_ns", lambda: time.ns)
    monkeypatch.setattr(sampling, "thread_time_ns", lambda: time.cpu_ns)
    yield time
    recording._recording.clear()
    recording.active = None


class Scripted(Sampler):
    """A sampler that returns the gaps it was given, and notes the steps it is shown."""

    def __init__(self, *gaps: int) -> None:
        super().__init__(0.01)
        self.shown: list[tuple[int, int, int]] = []
        self.others: list[int] = []
        self.restarts = 0
        self._gaps = iter(gaps)

    def close(self, cost_ns: int, cpu_ns: int, wall_ns: int) -> None:
        self.shown.append((cost_ns, cpu_ns, wall_ns))

    def gap(self, step: int) -> int:
        return next(self._gaps, 0)

    def restart(self) -> None:
        self.restarts += 1

    def charge_other_threads(self, cost_ns: int) -> None:
        self.others.append(cost_ns)
        self.affords_other_threads = sum(self.others) < 1_000


class Source:
    """A choice of targets that only the test changes."""

    def __init__(self, chosen: TargetSet) -> None:
        self.chosen = chosen
        self.change: str | None = None

    def describe_change(self) -> str | None:
        change, self.change = self.change, None
        return change


class Probe:
    """A probe that notes its calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[str] = []

    def attach(self) -> None:
        self.calls.append("on")

    def detach(self) -> None:
        self.calls.append("off")
        if self.error is not None:
            raise self.error

    def remove(self) -> None:
        self.detach()


def make(sampler: Sampler | None = None, source: Source | None = None, **more: Any) -> Sampling:
    """Return sampling in its first step, before it is attached."""
    made = Sampling(Recorder(FakeClock()), sampler or Scripted(), source or Source(TargetSet()), **more)
    made.start_clocks()
    return made


def close(made: Sampling, time: Time, step: int = 1, marks: int = 0, paid_ns: int = 0) -> int:
    """End a recorded step now, and begin the next one; return the gap after it."""
    gap = made.close(step, marks, paid_ns, time.ns, time.cpu_ns, NO_OTHER_MARKS)
    made.start_clocks()
    return gap


# The cost of a recorded step.


def test_a_step_lasts_from_the_end_of_autoprofs_work_before_it_to_the_begin_of_that_after_it(time: Time) -> None:
    """By the host's time and by the thread's."""
    sampler = Scripted()
    made = make(sampler)
    for ns in (1_000, 2_000):
        time.ns += ns
        time.cpu_ns += ns // 2
        ended = time.ns, time.cpu_ns
        time.ns += 50
        time.cpu_ns += 50
        made.close(1, 0, 0, *ended, NO_OTHER_MARKS)
        made.start_clocks()
    assert sampler.shown == [(0, 500, 1_000), (0, 1_000, 2_000)]


def test_the_cost_of_a_step_is_autoprofs_work_since_the_one_before_and_its_marks(time: Time) -> None:
    """``paid_ns`` counts from the start of the run; the marks are no part of the step's length."""
    sampler = Scripted()
    made = make(sampler, mark_cost=MarkCost(forward_ns=2.0, backward_ns=3.0))
    for marks, paid_ns in ((10, 100), (0, 150), (7, 150)):
        time.ns += 1_000
        time.cpu_ns += 1_000
        close(made, time, 1, marks, paid_ns)
    assert sampler.shown == [(130, 970, 970), (50, 1_000, 1_000), (21, 979, 979)]


def test_a_step_with_work_that_the_user_has_asked_for_is_not_shown_to_the_sampler(time: Time) -> None:
    """A deep capture; its work is no cost of the step after it."""
    sampler = Scripted()
    made = make(sampler)
    for step, paid_ns in ((1, 10), (2, 5_000), (3, 5_010)):
        time.ns += 1_000
        if step == 2:
            made.exclude(300)
        close(made, time, step, 0, paid_ns)
    assert [cost for cost, _, _ in sampler.shown] == [10, 10]


def test_a_pause_is_no_part_of_a_step(time: Time) -> None:
    """Neither its time nor the processor time of the program in it."""
    sampler = Scripted()
    made = make(sampler)
    time.ns += 1_000
    time.cpu_ns += 800
    made.exclude_pause(400, 300)
    close(made, time)
    assert sampler.shown == [(0, 500, 600)]


def test_without_a_budget_every_step_is_recorded(time: Time) -> None:
    """Whatever it costs."""
    made = make(Sampler(None))
    assert [close(made, time, step, 5, step * S) for step in range(1, 40)] == [0] * 39


# Probes and targets.


def test_switching_twice_attaches_once(time: Time) -> None:
    """And detaches the probes that were attached."""
    probe, step_probe = Probe(), Probe()
    made = make(source=Source(TargetSet([probe])), step_probes=[step_probe])
    recorder = made._recorder
    for on in (False, True, True, False, False):
        made.switch(on)
        assert (recording.active is recorder) == on
    assert probe.calls == step_probe.calls == ["on", "off"]


def test_another_set_of_targets_is_taken_over_where_a_step_begins(time: Time) -> None:
    """Its probes replace the others, its modules and its number are those of the step, and the account starts anew."""
    fine, coarse = Probe(), Probe()
    targets: Any = (SimpleNamespace(fqn="a"), SimpleNamespace(fqn="a.b"))
    sampler, source = Scripted(), Source(TargetSet([fine], targets, 3))
    made = make(sampler, source)
    made.switch(True)
    source.chosen = TargetSet([coarse], targets[:1], 4)
    assert (made.cut, made.instrumented, made.targets) == (3, frozenset({"a", "a.b"}), targets)
    made.begin_step()
    assert (made.cut, made.instrumented, made.targets) == (4, frozenset({"a"}), targets[:1])
    assert (fine.calls, coarse.calls, sampler.restarts) == (["on", "off"], [], 1)
    made.switch(True)
    made.begin_step()
    assert (coarse.calls, sampler.restarts) == (["on"], 1)


def test_changes_of_rows_and_of_the_distance_of_steps_are_described_once(time: Time) -> None:
    """With the step from which on they hold."""
    sampler, source = Sampler(0.01), Source(TargetSet())
    made = make(sampler, source)
    assert made.describe_change(1) is None
    source.change = "a is not recorded"
    notes = [made.describe_change(10), made.describe_change(11)]
    for step, k in ((20, 4), (21, 4), (22, 1)):
        sampler.k = k
        notes.append(made.describe_change(step))
    assert notes == [
        "from step 10 on, a is not recorded",
        None,
        "to keep the budget: from step 20 on, one of 4 steps is recorded",
        None,
        "there is room in the budget again: from step 22 on, every step is recorded",
    ]


def test_at_the_end_all_probes_are_detached_whatever_fails(time: Time) -> None:
    """Also those that a signal left attached; the first failure is raised then."""
    before, step_probe = Probe(), Probe()
    probes = [Probe(ValueError("first")), Probe(ValueError("second")), Probe()]
    source = Source(TargetSet([before]))
    made = make(source=source, step_probes=[step_probe])
    made.switch(True)
    source.chosen = TargetSet(probes)
    made.begin_step()
    made.switch(True)
    with pytest.raises(ValueError, match="first"):
        made.detach_all()
    assert all(probe.calls[-1] == "off" for probe in (before, *probes, step_probe))
    assert recording.active is None


def test_probes_that_were_let_go_are_attached_no_more(time: Time) -> None:
    """The targets stay, for the reports."""
    probe, everywhere = Probe(), Probe()
    target: Any = SimpleNamespace(fqn="a")
    made = make(source=Source(TargetSet([probe], (target,))), step_probes=[everywhere], flight=Flight())
    made.let_go()
    made.switch(True)
    made.begin_step()
    made.switch(False)
    made.detach_all()
    assert probe.calls == everywhere.calls == []
    assert made.targets == (target,)
    assert made.flight is None


# Gaps.


def in_steps_of(made: Sampling, time: Time, ns: int) -> Sampling:
    """Record a step of this length, so that the parts of gaps are known."""
    time.ns += ns
    close(made, time)
    return made


def parts(made: Sampling, step_ns: int, time: Time) -> list[int]:
    """Let the steps of an open gap pass; return the number of counts in each of its parts."""
    found = []
    while made.gap_remaining:
        found.append(made.gap_remaining)
        time.ns += made.gap_remaining * step_ns
        made.gap_remaining = 0
        made.check_gap(time.ns)
    return found


@pytest.mark.parametrize("per_step", [1, 3])
def test_a_gap_has_parts_of_two_seconds(time: Time, per_step: int) -> None:
    """Counted in optimizer steps; after each part there is time for postponed work."""
    made = in_steps_of(make(), time, 100 * MS)
    made.begin_gap(50, per_step)
    assert parts(made, 100 * MS // per_step, time) == [per_step * n for n in (20, 20, 10)]


def test_a_part_has_at_least_one_step(time: Time) -> None:
    """However long steps are."""
    made = in_steps_of(make(), time, 100 * S)
    made.begin_gap(4)
    assert parts(made, MS, time) == [1, 1, 1, 1]


def test_the_steps_of_a_gap_so_far_are_those_that_have_ended(time: Time) -> None:
    """Outside of a gap there are none."""
    made = in_steps_of(make(), time, 100 * MS)
    assert (made.in_gap, made.steps_in_gap) == (False, 0)
    made.begin_gap(5, 2)
    seen = []
    for _ in range(5):
        seen.append((made.in_gap, made.steps_in_gap))
        made.gap_remaining -= 2
        if not made.gap_remaining:
            made.check_gap(time.ns)
    assert seen == [(True, n) for n in range(5)]
    made.end_gap(time.ns)
    assert (made.in_gap, made.steps_in_gap) == (False, 0)


def test_a_gap_is_ended_early_with_the_step_that_is_open(time: Time) -> None:
    """It has the steps up to that one."""
    made = in_steps_of(make(), time, 100 * MS)
    assert made.end_gap_early() == 0
    made.begin_gap(50, 3)
    made.gap_remaining -= 4  # one step, and an optimizer step of the second
    assert made.end_gap_early() == 2
    assert made.gap_remaining == 2
    made.gap_remaining = 0
    assert not made.check_gap(time.ns)
    assert made.end_gap(time.ns)[0] == 2


@pytest.mark.parametrize(("since_ns", "counted_ns"), [(9, 209), (11, 200)])
def test_a_loop_that_ends_in_a_gap_leaves_the_time_after_it_out(time: Time, since_ns: int, counted_ns: int) -> None:
    """More than a step took since the last one was counted is no part of the gap."""
    made = in_steps_of(make(), time, 100 * MS)
    made.begin_gap(40)
    made.gap_remaining = 0
    time.ns += 200
    made.check_gap(time.ns)
    time.ns += since_ns
    assert made.abort_gap() == (20, counted_ns)
    assert (made.in_gap, made.gap_remaining) == (False, 0)


def test_a_pause_is_no_part_of_the_gap(time: Time) -> None:
    """Validation between unsampled steps."""
    made = in_steps_of(make(), time, 100 * MS)
    made.begin_gap(2)
    time.ns += 1_000
    made.exclude_pause(400)
    time.ns += 100
    made.gap_remaining = 0
    assert not made.check_gap(time.ns)
    assert made.end_gap(time.ns) == (2, 700)


def test_a_pause_since_the_last_counted_step_is_no_part_of_a_gap_that_the_loops_end_cuts(time: Time) -> None:
    """The time since then is counted without it."""
    made = in_steps_of(make(), time, 100 * MS)
    made.begin_gap(40)
    made.gap_remaining = 0
    time.ns += 200
    made.check_gap(time.ns)
    time.ns += 5_000 + 5
    made.exclude_pause(5_000)
    assert made.abort_gap() == (20, 205)


# Reserved steps.


def test_reserved_steps_are_recorded_whatever_their_cost(time: Time) -> None:
    """A gap ends before the first of them; after the last one gaps are as ever, and so they are when cancelled."""
    made = make(Scripted(*[50] * 20))
    made.reserve(10, 3)
    assert [close(made, time, step) for step in (1, 8, 9, 10, 11, 12, 13)] == [8, 1, 0, 0, 0, 50, 50]
    made.reserve(30, 2)
    made.release(30, 3)
    assert close(made, time, 20) == 9
    made.release(30, 2)
    made.release(30, 2)
    assert close(made, time, 20) == 50


# Other threads.


def test_marks_of_other_threads_are_charged_until_the_budget_does_not_pay_for_them(time: Time) -> None:
    """Their own time, that of the marks they skipped, and their part of autoprof's work; then they are off."""
    sampler = Scripted()
    made = make(sampler, mark_cost=MarkCost(forward_ns=2.0))
    assert made.records_other_threads
    made.close(1, 100, 1_000, time.ns, time.cpu_ns, OtherMarks(marks=10, ns=300, skipped=5))
    assert sampler.others == [300 + 10 + 1_000 * 20 // 100]
    assert sampler.shown[0][0] == 1_000 + 310 + 200
    assert made._recorder.others.recorded
    made.close(2, 10, 2_000, time.ns, time.cpu_ns, OtherMarks(marks=10, ns=0, skipped=0))
    assert sampler.others[1] == 1_000
    assert not made._recorder.others.recorded
    assert not made.records_other_threads
    made.close(3, 10, 2_000, time.ns, time.cpu_ns, OtherMarks(marks=0, ns=50, skipped=0))
    assert len(sampler.others) == 2


# A flight recorder.


class Flight:
    """A flight recorder that notes what it is told, and asks for a recorded step after ``slow``."""

    def __init__(self, slow: int = 0) -> None:
        self.calls: list[tuple[str, int]] = []
        self.slow = slow
        self.ring = SimpleNamespace(
            begin_recorded=lambda number: self.calls.append(("begin", number)),
            exclude=lambda ns: self.calls.append(("exclude", ns)),
        )

    def end_step(self, now_ns: int) -> bool:
        self.calls.append(("end", now_ns))
        return now_ns == self.slow


def test_a_flight_recorder_follows_each_step_and_what_is_no_part_of_it(time: Time) -> None:
    """Recorded or not: its ring has the length of all of them."""
    flight = Flight()
    made = make(flight=flight)
    made.begin_recorded(4)
    made.exclude_own(20)
    made.exclude_pause(30)
    made.end_recorded(70)
    made.begin_gap(3)
    assert made.count_step() == time.ns
    assert flight.calls == [("begin", 4), ("exclude", 20), ("exclude", 30), ("end", 70), ("end", time.ns)]
    assert made.gap_remaining == 3


def test_a_slow_step_of_a_gap_is_its_last_one(time: Time) -> None:
    """The next one is recorded: the step that is open ends the gap."""
    flight = Flight(slow=time.ns)
    made = make(flight=flight)
    made.begin_gap(50)
    made.count_step()
    assert made.gap_remaining == 1
    made.gap_remaining = 0
    assert not made.check_gap(time.ns)


def test_without_a_flight_recorder_only_the_time_is_read(time: Time) -> None:
    """At the end of an unsampled step; a recorded one tells nobody."""
    made = in_steps_of(make(), time, 100 * MS)
    made.begin_recorded(1)
    made.exclude_own(1)
    made.end_recorded(1)
    made.begin_gap(5)
    assert made.count_step() == time.ns
    assert made.gap_remaining == 5
