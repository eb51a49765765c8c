"""Sampling by itself: the cost of recorded steps, and which probes are attached."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest

from autoprof._capture import recorder as recording
from autoprof._capture.mark_cost import MarkCost
from autoprof._capture.other_threads import NO_OTHER_MARKS, OtherMarks
from autoprof._capture.recorder import Recorder
from autoprof._session.host_times import HostTimes
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


NOW: Final = Time()
"""The time that sampling reads."""


@pytest.fixture
def time() -> Iterator[Time]:
    """Return that time, as it was in the beginning; no recorder stays active."""
    NOW.ns, NOW.cpu_ns = 7 * S, 3 * S
    yield NOW
    recording._recording.clear()
    recording.active = None


class Scripted(Sampler):
    """A sampler that notes the steps it is shown."""

    def __init__(self) -> None:
        super().__init__(0.01)
        self.shown: list[tuple[int, int, int]] = []
        self.others: list[int] = []
        self.restarts = 0

    def close(self, cost_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int | None = None, gap_ns: int = 0) -> None:
        self.shown.append((cost_ns, cpu_ns, wall_ns))

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
    times = HostTimes(lambda: NOW.ns, lambda: NOW.cpu_ns)
    made = Sampling(Recorder(FakeClock()), sampler or Scripted(), source or Source(TargetSet()), times=times, **more)
    made.start_clocks()
    return made


def close(made: Sampling, time: Time, marks: int = 0, paid_ns: int = 0) -> None:
    """End a recorded step now, and begin the next one."""
    made.close(marks, paid_ns, time.ns, time.cpu_ns, NO_OTHER_MARKS)
    made.start_clocks()


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
        made.close(0, 0, *ended, NO_OTHER_MARKS)
        made.start_clocks()
    assert sampler.shown == [(0, 500, 1_000), (0, 1_000, 2_000)]


def test_the_cost_of_a_step_is_autoprofs_work_since_the_one_before_and_its_marks(time: Time) -> None:
    """``paid_ns`` counts from the start of the run; the marks are no part of the step's length."""
    sampler = Scripted()
    made = make(sampler, mark_cost=MarkCost(forward_ns=2.0, backward_ns=3.0))
    for marks, paid_ns in ((10, 100), (0, 150), (7, 150)):
        time.ns += 1_000
        time.cpu_ns += 1_000
        close(made, time, marks, paid_ns)
    assert sampler.shown == [(130, 970, 970), (50, 1_000, 1_000), (21, 979, 979)]


def test_a_step_with_work_that_the_user_has_asked_for_is_not_shown_to_the_sampler(time: Time) -> None:
    """A deep capture; its work is no cost of the step after it."""
    sampler = Scripted()
    made = make(sampler)
    for step, paid_ns in ((1, 10), (2, 5_000), (3, 5_010)):
        time.ns += 1_000
        if step == 2:
            made.exclude(300)
        close(made, time, 0, paid_ns)
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
    for step in range(1, 40):
        close(made, time, 5, step * S)
        assert made.next_recorded(step + 1) == step + 1


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
    assert (made.set.number, made.fqns, made.set.targets) == (3, frozenset({"a", "a.b"}), targets)
    made.begin_step(1)
    assert (made.set.number, made.fqns, made.set.targets) == (4, frozenset({"a"}), targets[:1])
    assert (fine.calls, coarse.calls, sampler.restarts) == (["on", "off"], [], 1)
    made.switch(True)
    made.begin_step(2)
    assert (coarse.calls, sampler.restarts) == (["on"], 1)


def test_probes_that_may_stay_idle_are_attached_once_and_detached_with_their_targets(time: Time) -> None:
    """A model has hundreds of them: they are not asked at each step. The others come and go."""
    idling, other = Probe(), Probe()
    idling.idles = True  # type: ignore[attr-defined]
    source = Source(TargetSet([idling]))
    made = make(source=source, step_probes=[other])
    for on in (True, False, True, False):
        made.switch(on)
    assert (idling.calls, other.calls) == (["on"], ["on", "off", "on", "off"])
    source.chosen = TargetSet(number=1)
    made.begin_step(2)
    made.switch(True)
    assert idling.calls == ["on", "off"]


def test_changes_of_rows_and_of_the_distance_of_steps_are_described_once(time: Time) -> None:
    """With the step from which on they hold."""
    sampler, source = Sampler(0.01), Source(TargetSet())
    made = make(sampler, source)
    assert made.begin_step(1) is None
    source.chosen, source.change = TargetSet(number=1), "a is not recorded"
    notes = [made.begin_step(10), made.begin_step(11)]
    for step, k in ((20, 4), (21, 4), (22, 1)):
        sampler.k = k
        notes.append(made.begin_step(step))
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
    made.begin_step(2)
    made.switch(True)
    with pytest.raises(ValueError, match="first"):
        made.detach_all()
    assert all(probe.calls[-1] == "off" for probe in (before, *probes, step_probe))
    assert recording.active is None


# Reserved steps.


def test_reserved_steps_are_recorded_whatever_their_cost() -> None:
    """Before the first of them and after the last one steps are chosen as ever, and so they are when cancelled."""
    sampler = Sampler(0.01)
    sampler.k = 64
    made = make(sampler)
    made.reserve(10, 3)
    assert [made.next_recorded(step) for step in (1, 9, 10, 12, 13, 64)] == [10, 10, 10, 12, 64, 64]
    made.reserve(30, 2)
    made.release(30, 3)
    assert made.next_recorded(20) == 30
    made.release(30, 2)
    made.release(30, 2)
    assert made.next_recorded(20) == 64


# Other threads.


def test_marks_of_other_threads_are_charged_until_the_budget_does_not_pay_for_them(time: Time) -> None:
    """Their own time, that of the marks they skipped, and their part of autoprof's work; then they are off."""
    sampler = Scripted()
    made = make(sampler, mark_cost=MarkCost(forward_ns=2.0))
    made.close(100, 1_000, time.ns, time.cpu_ns, OtherMarks(marks=10, ns=300, skipped=5))
    assert sampler.others == [300 + 10 + 1_000 * 20 // 100]
    assert sampler.shown[0][0] == 1_000 + 310 + 200
    assert made._recorder.others.recorded
    made.close(10, 2_000, time.ns, time.cpu_ns, OtherMarks(marks=10, ns=0, skipped=0))
    assert sampler.others[1] == 1_000
    assert not made._recorder.others.recorded
    made.close(10, 2_000, time.ns, time.cpu_ns, OtherMarks(marks=0, ns=50, skipped=0))
    assert len(sampler.others) == 2
