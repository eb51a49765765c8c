"""Sampling by itself: what recorded steps cost, how gaps are counted, and which probes are attached."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from autoprof._capture import recorder as recording
from autoprof._capture.mark_cost import MarkCost
from autoprof._capture.other_threads import OtherMarks
from autoprof._capture.recorder import Recorder
from autoprof._session import sampling
from autoprof._session.governor import MAX_SETTLING_STEPS, MIN_SETTLING_STEPS, SETTLING_NS
from autoprof._session.sampling import Level, Sampling
from autoprof.testing import FakeClock

MS = 1_000_000
S = 1_000_000_000


class Time:
    """The host's time, which only the test lets pass."""

    def __init__(self) -> None:
        self.ns = 7 * S


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    """Return the time that sampling reads; no recorder stays active."""
    time = Time()
    monkeypatch.setattr(sampling, "perf_counter_ns", lambda: time.ns)
    yield time
    recording._recording.clear()
    recording.active = None


class Scripted:
    """A governor that returns the gaps it was given, and notes what it hears."""

    def __init__(self, *gaps: int, active: bool = True) -> None:
        self.active = active
        self.level = 0
        self.comparable = 2
        self.bare_ns = 100.0 * MS
        self.affords_other_threads = True
        self.follows_common_steps = False
        self.recorded: list[tuple[int, int, int, bool]] = []
        self.numbers: list[int] = []
        self.gaps: list[tuple[int, int, int]] = []
        self.compared: list[tuple[int, int]] = []
        self.others: list[int] = []
        self._gaps = iter(gaps)

    def after_recorded(self, step_ns: int, cost_ns: int, toggle_ns: int, *, settles: bool, step: int) -> int:
        self.recorded.append((step_ns, cost_ns, toggle_ns, settles))
        self.numbers.append(step)
        return next(self._gaps, 0)

    def after_gap(self, steps: int, elapsed_ns: int, spent_ns: int) -> None:
        self.gaps.append((steps, elapsed_ns, spent_ns))

    def compare(self, steps: int, elapsed_ns: int) -> None:
        self.compared.append((steps, elapsed_ns))

    def charge_other_threads(self, cost_ns: int) -> None:
        self.others.append(cost_ns)
        self.affords_other_threads = sum(self.others) < 1_000


class Probe:
    """A probe whose attaching and detaching takes time."""

    def __init__(self, time: Time, on_ns: int = 0, off_ns: int = 0, error: Exception | None = None) -> None:
        self.time, self.on_ns, self.off_ns, self.error = time, on_ns, off_ns, error
        self.calls: list[str] = []

    def attach(self) -> None:
        self.time.ns += self.on_ns
        self.calls.append("on")

    def detach(self) -> None:
        self.time.ns += self.off_ns
        self.calls.append("off")
        if self.error is not None:
            raise self.error

    def remove(self) -> None:
        self.detach()


def make(governor: Scripted, *levels: Level, **more: Any) -> Sampling:
    """Return sampling by this governor."""
    return Sampling(Recorder(FakeClock()), governor, levels, **more)  # type: ignore[arg-type]


def begin(made: Sampling) -> Sampling:
    """Begin the first step."""
    made.begin_step()
    made.switch(True)
    return made


def test_a_run_begins_outside_of_a_gap_with_the_modules_of_its_level(time: Time) -> None:
    """Nothing is attached yet; another level has modules of its own."""
    targets: Any = (SimpleNamespace(fqn="a"), SimpleNamespace(fqn="a.b"))
    governor = Scripted()
    made = make(governor, Level(targets=targets), Level(targets=targets[:1]))
    assert (made.gap_remaining, made.steps_in_gap, made.settling) == (0, 0, False)
    assert (made.instrumented, made.targets) == (frozenset({"a", "a.b"}), targets)
    governor.level = 1
    made.begin_step()
    assert (made.instrumented, made.targets) == (frozenset({"a"}), targets[:1])


# What a recorded step costs.


def test_a_step_lasts_from_the_end_of_the_one_before(time: Time) -> None:
    """The first from the end of attaching its probes."""
    governor = Scripted()
    made = begin(make(governor, Level([Probe(time, on_ns=50)])))
    for step, ns in enumerate((1_000, 2_000, 3_000), 1):
        time.ns += ns
        assert made.close(step, 0, 0) == 0
    assert [one[0] for one in governor.recorded] == [1_000, 2_000, 3_000]


def test_the_cost_of_a_step_is_autoprofs_work_in_it_and_that_of_its_marks(time: Time) -> None:
    """``paid_ns`` counts from the start of the run; a mark costs the dearer of its two costs."""
    governor = Scripted()
    made = begin(make(governor, Level(), mark_cost=MarkCost(forward_ns=2.0, backward_ns=3.0)))
    for step, (marks, paid_ns) in enumerate(((10, 100), (0, 150), (7, 150)), 1):
        made.close(step, marks, paid_ns)
    assert [one[1] for one in governor.recorded] == [30 + 100, 50, 21]


def test_work_that_the_user_has_asked_for_is_no_cost_and_no_part_of_the_step(time: Time) -> None:
    """And neither is a pause."""
    governor = Scripted()
    made = begin(make(governor, Level()))
    time.ns += 1_000
    made.exclude(300)
    made.close(1, 0, 450)
    time.ns += 1_000
    made.exclude_pause(400)
    made.close(2, 0, 450)
    time.ns += 1_000
    made.exclude(50)
    made.close(3, 0, 600)
    assert governor.recorded == [(700, 150, 0, False), (600, 0, 0, False), (950, 100, 0, False)]


def test_the_cost_of_attaching_and_detaching_is_known_after_the_first_gap(time: Time) -> None:
    """It is charged to the burst by itself, and lengthens none of its steps; the work of the gap is charged with it."""
    governor = Scripted(4, 0, 0)
    made = begin(make(governor, Level([Probe(time, 50, 30)]), step_probes=[Probe(time, 5, 3)]))
    time.ns += 1_000
    assert made.close(1, 0, 100) == 4
    began_ns = made.begin_gap(4)
    assert began_ns == time.ns
    time.ns += 4_000
    assert made.end_gap(time.ns, 170) == (4, 4_000)
    made.begin_step()
    made.switch(True)
    time.ns += 900
    made.close(6, 0, 225)
    time.ns += 800
    made.close(7, 0, 225)
    assert governor.recorded == [
        (1_000, 100, 55, False),
        (900, 0, 55, True),
        (800, 0, 55, True),
    ]
    assert governor.gaps == [(4, 4_000, 170 - 100 - 33)]


def test_switching_twice_attaches_once(time: Time) -> None:
    """And detaches what was attached, though the level has changed."""
    probe, step_probe = Probe(time), Probe(time)
    made = make(Scripted(), Level([probe]), step_probes=[step_probe])
    recorder = made._recorder
    for on in (False, True, True, False, False):
        made.switch(on)
        assert (recording.active is recorder) == on
    assert probe.calls == step_probe.calls == ["on", "off"]


def test_without_a_budget_every_step_is_recorded_and_nothing_is_charged(time: Time) -> None:
    """The governor is not asked."""
    governor = Scripted(9, 9, active=False)
    made = begin(make(governor, Level()))
    assert [made.close(step, 5, 5) for step in (1, 2)] == [0, 0]
    assert governor.recorded == []
    assert not made.settling


@pytest.mark.parametrize(
    ("every", "gap", "skipped"),
    [(1, 0, 0), (1, 7, 7), (4, 0, 3), (4, 3, 3), (4, 4, 7), (4, 7, 7), (4, 8, 11), (2, 1, 1)],
)
def test_each_nth_step_is_recorded_and_the_governor_skips_some_of_these(
    time: Time, every: int, gap: int, skipped: int
) -> None:
    """A gap ends before a step that was asked for; with ``every`` no step settles."""
    governor = Scripted(gap)
    made = begin(make(governor, Level(), every=every))
    assert made.close(1, 0, 0) == skipped
    made.begin_gap(1)
    made.end_gap(time.ns, 0)
    assert made.settling == (every == 1)


def test_each_nth_step_is_recorded_without_a_budget_too(time: Time) -> None:
    """The governor then returns no gap."""
    made = begin(make(Scripted(active=False), Level(), every=3))
    assert made.close(1, 0, 0) == 2


# Settling.


@pytest.mark.parametrize(
    ("step_ns", "settling"),
    [
        (SETTLING_NS, MIN_SETTLING_STEPS),
        (SETTLING_NS // 4, 4),
        (SETTLING_NS // 4 - 1, 5),
        (1, MAX_SETTLING_STEPS),
    ],
)
def test_the_first_steps_settle_until_they_have_lasted_long_enough(time: Time, step_ns: int, settling: int) -> None:
    """At least two and at most eight: after each gap and each change of level, not at the start of the run."""
    governor = Scripted()
    one, two = Level(), Level()
    made = begin(make(governor, one, two))

    def count() -> int:
        settled = 0
        for step in range(1, 20):
            settled += made.settling
            time.ns += step_ns
            made.close(step, 0, 0)
        return settled

    assert count() == 0
    for _ in range(2):
        made.begin_gap(3)
        made.end_gap(time.ns, 0)
        made.switch(True)
        assert count() == settling
    governor.level = 1
    made.begin_step()
    made.switch(True)
    assert count() == settling


# Levels.


def test_a_level_is_taken_over_where_a_step_begins(time: Time) -> None:
    """Its probes replace the others; its modules and its number are those of the step."""
    fine, coarse = Probe(time), Probe(time)
    governor = Scripted()
    made = begin(make(governor, Level([fine], cut=3), Level([coarse], cut=4), mark_cost=None))
    governor.level = 1
    assert made.cut == 3
    made.begin_step()
    assert (made.cut, fine.calls, coarse.calls) == (4, ["on", "off"], [])
    made.switch(True)
    made.begin_step()
    assert coarse.calls == ["on"]


def test_the_finest_level_may_change_by_itself(time: Time) -> None:
    """Its source is asked where each step begins, unless the governor has chosen another one."""

    class Finest:
        level = Level(words="first")

    governor, finest = Scripted(), Finest()
    fixed, coarse = Level(words="fixed"), Level(words="coarse")
    made = begin(make(governor, fixed, coarse, finest=finest))
    assert made._level.words == "first"
    finest.level = Level(words="second")
    made.begin_step()
    assert made._level.words == "second"
    governor.level = 1
    made.begin_step()
    assert made._level.words == "coarse"


def test_a_change_of_level_is_described_once(time: Time) -> None:
    """With its reason and the step from which on it holds."""
    governor = Scripted()
    made = make(governor, Level(words="all are"), Level(words="some are"), Level(words="none is"))
    assert made.describe_change(1) is None
    notes = []
    for step, level in enumerate((1, 1, 2, 0), 10):
        governor.level = level
        notes.append(made.describe_change(step))
    assert notes == [
        "to keep the budget: from step 10 on, some are recorded",
        None,
        "to keep the budget: from step 12 on, none is recorded",
        "there is room in the budget again: from step 13 on, all are recorded",
    ]


def test_at_the_end_all_probes_of_all_levels_are_detached_whatever_fails(time: Time) -> None:
    """Each once, also where a signal came while they were switched; the first failure is raised then."""
    shared = Probe(time)
    probes = [Probe(time, error=ValueError("first")), Probe(time, error=ValueError("second")), Probe(time)]
    step_probe = Probe(time)

    class Finest:
        level = Level([Probe(time)])

    finest = Finest()
    made = begin(make(Scripted(), Level([*probes, shared]), Level([shared]), step_probes=[step_probe], finest=finest))
    with pytest.raises(ValueError, match="first"):
        made.detach_all()
    for probe in (*probes, shared, step_probe, *finest.level.probes):
        assert probe.calls[-1] == "off"  # type: ignore[attr-defined]
        assert probe.calls.count("off") == 1  # type: ignore[attr-defined]
    assert recording.active is None
    made.switch(False)


# Gaps.


def parts(made: Sampling, step_ns: int, time: Time, limit: int = 200) -> list[int]:
    """Let the steps of an open gap pass; return the number of counts in each of its parts."""
    found = []
    for _ in range(limit):
        found.append(made.gap_remaining)
        time.ns += made.gap_remaining * step_ns
        made.gap_remaining = 0
        if not made.check_gap(time.ns):
            break
    return found


@pytest.mark.parametrize("per_step", [1, 3])
def test_a_gap_has_a_part_that_is_compared_and_parts_of_two_seconds(time: Time, per_step: int) -> None:
    """Counted in optimizer steps; after each part there is time for postponed work."""
    governor = Scripted()
    made = begin(make(governor, Level()))
    made.begin_gap(50, per_step)
    assert parts(made, 100 * MS // per_step, time) == [per_step * n for n in (2, 20, 20, 8)]
    assert governor.compared == [(2, 2 * (100 * MS // per_step) * per_step)]


def test_a_gap_that_begins_inside_a_step_is_compared_from_the_middle_of_the_first_one_on(time: Time) -> None:
    """To the middle of a later one."""
    governor = Scripted()
    made = begin(make(governor, Level()))
    time.ns += 5
    made.begin_gap(10, 2, inside=True)
    assert parts(made, MS, time) == [2, 4, 14]
    assert governor.compared == [(2, 4 * MS)]


@pytest.mark.parametrize(("steps", "inside", "compared"), [(1, False, 1), (1, True, 0), (2, True, 1), (2, False, 2)])
def test_a_gap_shorter_than_the_burst_is_compared_as_a_whole(
    time: Time, steps: int, inside: bool, compared: int
) -> None:
    """One that begins inside a step has a whole step less."""
    governor = Scripted()
    made = begin(make(governor, Level()))
    made.begin_gap(steps, inside=inside)
    assert sum(parts(made, MS, time)) == steps
    assert [steps for steps, _ in governor.compared] == [compared] * bool(compared)


def test_a_gap_after_nothing_comparable_compares_its_first_step(time: Time) -> None:
    """A part has at least one step, and steps of unknown length are counted one by one for two seconds of nothing."""
    governor = Scripted()
    governor.comparable, governor.bare_ns = 0, 0.0
    made = begin(make(governor, Level()))
    made.begin_gap(5)
    assert parts(made, MS, time) == [1, 4]
    governor.bare_ns = 100.0 * S
    made.begin_gap(4)
    assert parts(made, MS, time) == [1, 1, 1, 1]


def test_what_was_too_much_for_one_step_goes_on_after_the_next_one(time: Time) -> None:
    """The gap stays as long as it is."""
    made = begin(make(Scripted(), Level()))
    made.begin_gap(50, 3)
    made.gap_remaining = 0
    assert made.check_gap(time.ns)
    assert made.gap_remaining == 60
    made.check_after_next_step()
    assert made.gap_remaining == 3
    made.check_after_next_step()
    assert made.gap_remaining == 3
    assert sum(parts(made, MS, time)) == 3 * 48


def test_the_seconds_that_are_left_of_a_gap_follow_from_the_length_of_its_steps(time: Time) -> None:
    """A live display shows them; outside of a gap there are none."""
    made = begin(make(Scripted(), Level()))
    assert made.gap_remaining_s() == 0.0
    made.begin_gap(50, 3)
    assert made.gap_remaining_s() == pytest.approx(5.0)
    made.gap_remaining = 0
    made.check_gap(time.ns)
    assert made.gap_remaining_s() == pytest.approx(4.8)


def test_the_steps_of_a_gap_so_far_are_those_that_have_ended(time: Time) -> None:
    """Outside of a gap there are none."""
    made = begin(make(Scripted(), Level()))
    assert (made.in_gap, made.steps_in_gap) == (False, 0)
    made.begin_gap(5, 2)
    seen = []
    for _ in range(5):
        seen.append((made.in_gap, made.steps_in_gap))
        made.gap_remaining -= 2
        if not made.gap_remaining:
            made.check_gap(time.ns)
    assert seen == [(True, n) for n in range(5)]
    made.end_gap(time.ns, 0)
    assert (made.in_gap, made.steps_in_gap) == (False, 0)


def test_a_gap_is_ended_early_with_the_step_that_is_open(time: Time) -> None:
    """It has the steps up to that one; the rest is not compared."""
    governor = Scripted()
    made = begin(make(governor, Level()))
    assert made.end_gap_early() == 0
    made.begin_gap(50, 3)
    made.gap_remaining -= 4  # one step, and an optimizer step of the second
    assert made.end_gap_early() == 2
    assert made.gap_remaining == 2
    made.gap_remaining = 0
    assert not made.check_gap(time.ns)
    assert governor.compared == []
    assert made.end_gap(time.ns, 0)[0] == 2
    made.begin_gap(50, 3, inside=True)
    assert made.end_gap_early() == 1
    assert made.gap_remaining == 3
    made.gap_remaining = 0
    assert not made.check_gap(time.ns)


@pytest.mark.parametrize(("since_ns", "counted_ns"), [(90, 290), (101, 200)])
def test_a_loop_that_ends_in_a_gap_leaves_the_time_after_it_out(time: Time, since_ns: int, counted_ns: int) -> None:
    """More than a step took since the last one was counted is no part of the gap."""
    made = begin(make(Scripted(), Level()))
    made.begin_gap(40)
    made.gap_remaining = 0
    time.ns += 200
    made.check_gap(time.ns)
    time.ns += since_ns
    assert made.abort_gap() == (2, counted_ns)
    assert (made.in_gap, made.gap_remaining) == (False, 0)


def test_a_pause_is_no_part_of_the_gap_nor_of_the_comparison(time: Time) -> None:
    """Validation between unsampled steps."""
    governor = Scripted()
    made = begin(make(governor, Level()))
    made.begin_gap(2)
    time.ns += 1_000
    made.exclude_pause(400)
    time.ns += 100
    made.gap_remaining = 0
    assert not made.check_gap(time.ns)
    assert made.end_gap(time.ns, 0) == (2, 700)
    assert governor.compared == [(2, 700)]
    assert governor.gaps == [(2, 700, 0)]


def test_a_pause_since_the_last_counted_step_is_no_part_of_a_gap_that_the_loops_end_cuts(time: Time) -> None:
    """The time since then is counted without it."""
    made = begin(make(Scripted(), Level()))
    made.begin_gap(40)
    made.gap_remaining = 0
    time.ns += 200
    made.check_gap(time.ns)
    time.ns += 5_000 + 60
    made.exclude_pause(5_000)
    assert made.abort_gap() == (2, 260)


# Reserved steps.


def test_reserved_steps_are_recorded_whatever_their_cost(time: Time) -> None:
    """A gap ends before the first of them; after the last one gaps are as ever, and so they are when cancelled."""
    governor = Scripted(*[50] * 20)
    made = begin(make(governor, Level()))
    made.reserve(10, 3)
    assert [made.close(step, 0, 0) for step in (1, 8, 9, 10, 11, 12, 13)] == [8, 1, 0, 0, 0, 50, 50]
    made.reserve(30, 2)
    made.release(30, 3)
    assert made.close(20, 0, 0) == 9
    made.release(30, 2)
    made.release(30, 2)
    assert made.close(20, 0, 0) == 50


# Other threads.


def test_marks_of_other_threads_are_charged_until_the_budget_does_not_pay_for_them(time: Time) -> None:
    """Their own time, that of the marks they skipped, and their part of autoprof's work; then they are off."""
    governor = Scripted()
    made = begin(make(governor, Level(), mark_cost=MarkCost(forward_ns=2.0)))
    assert made.records_other_threads
    made.close(1, 100, 1_000, OtherMarks(marks=10, ns=300, skipped=5))
    assert governor.others == [300 + 10 + 1_000 * 20 // 100]
    assert governor.recorded[0][1] == 1_000 + 310 + 200
    assert made._recorder.others.recorded
    made.close(2, 10, 2_000, OtherMarks(marks=10, ns=0, skipped=0))
    assert governor.others[1] == 1_000
    assert not made._recorder.others.recorded
    assert not made.records_other_threads
    made.close(3, 10, 2_000, OtherMarks(marks=0, ns=50, skipped=0))
    assert len(governor.others) == 2


# Common steps, and a flight recorder.


def test_common_steps_are_recorded_at_any_number_and_known_by_theirs(time: Time) -> None:
    """All ranks record the same ones: ``every`` would move them."""
    governor = Scripted(3, 3)
    governor.follows_common_steps = True
    made = begin(make(governor, Level(), every=5))
    assert made.close(7, 0, 0) == 3
    assert made.close(11, 0, 0) == 3
    assert governor.numbers == [7, 11]


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
    made = begin(make(Scripted(), Level(), flight=flight))
    made.begin_recorded(4)
    made.exclude_own(20)
    made.exclude_pause(30)
    made.end_recorded(70)
    made.begin_gap(3)
    assert made.count_step() == time.ns
    assert flight.calls == [("begin", 4), ("exclude", 20), ("exclude", 30), ("end", 70), ("end", time.ns)]
    assert made.gap_remaining == 2


def test_a_slow_step_of_a_gap_is_its_last_one(time: Time) -> None:
    """The next one is recorded: the step that is open ends the gap."""
    flight = Flight(slow=time.ns)
    made = begin(make(Scripted(), Level(), flight=flight))
    made.begin_gap(50)
    made.count_step()
    assert made.gap_remaining == 1
    made.gap_remaining = 0
    assert not made.check_gap(time.ns)


def test_without_a_flight_recorder_only_the_time_is_read(time: Time) -> None:
    """At the end of an unsampled step; a recorded one tells nobody."""
    made = begin(make(Scripted(), Level()))
    made.begin_recorded(1)
    made.exclude_own(1)
    made.end_recorded(1)
    made.begin_gap(50)
    assert made.count_step() == time.ns
    assert made.gap_remaining == 2


def test_what_was_let_go_is_attached_no_more(time: Time) -> None:
    """The targets stay, for the reports."""
    probe, everywhere = Probe(time), Probe(time)
    target: Any = SimpleNamespace(fqn="a")
    level = Level([probe], targets=(target,))
    finest = SimpleNamespace(level=level)
    made = make(Scripted(), level, step_probes=[everywhere], finest=finest, flight=Flight())
    made.let_go()
    made.switch(True)
    assert probe.calls == everywhere.calls == []
    assert made.targets == (target,)
    assert made.flight is None
    made.begin_step()
    made.switch(False)
    made.detach_all()
    assert probe.calls == everywhere.calls == []


def test_the_number_of_the_set_of_targets_is_that_of_the_level(time: Time) -> None:
    """It changes with the level, where a step begins."""
    governor = Scripted()
    made = make(governor, Level(cut=3), Level(cut=5))
    assert made.cut == 3
    governor.level = 1
    assert made.cut == 3
    made.begin_step()
    assert made.cut == 5
