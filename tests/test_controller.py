"""The budget: every step is recorded while it affords them, then fewer rows, then one step of each k."""

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest

from autoprof.base.frame import FrameRun
from autoprof.session.account import RECORDING, TABLE, Part
from autoprof.session.controller import Controller, Cost, RecordedRows, RowOption, plan
from autoprof.session.session_probes import TargetSet
from autoprof.testing import make_frame
from tests.accounts import FakeRun

US = 1_000
MS = 1_000_000
BUDGET = 0.01 / sum(TABLE[part].share for part in RECORDING)
"""The budget of which 1 % of the run's time is for recording."""


class FakeController(Controller):
    """A controller with the account of a run whose clocks only the test lets pass."""

    def __init__(self, budget: float | None = BUDGET, every: int = 1) -> None:
        self.run = FakeRun(budget)
        super().__init__(self.run.account, every)

    def record(self, own_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int | None = None) -> None:
        """Record a step of this cost; the steps up to the next recorded one are as long."""
        self.run.work(Part.STEPS, own_ns)
        self.run.now_ns += wall_ns
        self.close(own_ns, cpu_ns, wall_ns, marks_ns)

    def gap(self, step: int) -> int:
        """Return how many steps are skipped after this one."""
        return self.next_recorded(step + 1) - step - 1


class Rows(RecordedRows):
    """Rows with these marks in a step, the longest first, of which the first ``floor`` are never dropped."""

    def __init__(self, marks: Sequence[int], floor: int = 1) -> None:
        super().__init__(TargetSet())
        self.marks, self.floor, self.opened = list(marks), floor, {str(at) for at in range(len(marks))}

    @property
    def options(self) -> list[RowOption]:
        return [
            RowOption(str(at), 1 / (at + 1), marks, str(at) in self.opened, stays=at < self.floor, inside="0")
            for at, marks in enumerate(self.marks)
        ]

    def use(self, rows: Iterable[RowOption]) -> bool:
        before, self.opened = self.opened, {row.name for row in rows}
        return self.opened != before

    @property
    def kept(self) -> int:
        return len(self.opened)

    @property
    def present(self) -> int:
        return sum(self.marks[int(name)] for name in self.opened)


def run(
    controller: FakeController,
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
        marks = controller.rows.present if isinstance(controller.rows, Rows) else 0
        own = own_ns + marks * mark_ns
        if step // pass_steps > first // pass_steps or pass_steps == 1:
            controller.spend_on_rows(pass_ns)
            cost_ns, first = cost_ns + pass_ns, step
        cost_ns += own
        cpu_ns = round((1 - waits) * step_ns)
        wall_ns = step_ns
        if noise is not None and noise.random() < 0.9:  # a step in ten is not interrupted
            wall_ns = round(step_ns * noise.uniform(1, 5))
        controller.record(own, cpu_ns, wall_ns)
        skipped = controller.gap(step)
        controller.run.now_ns += skipped * step_ns
        step += 1 + skipped
    return recorded, cost_ns / (steps * step_ns)


def with_rows(*marks: int, budget: float | None = BUDGET, floor: int = 1) -> FakeController:
    """Return a controller of rows with these marks in a step."""
    controller = FakeController(budget)
    controller.rows = Rows(marks, floor)
    return controller


def device_run(waited_ns: int, events_ns: int) -> FrameRun:
    """Return a step in which the device waited so long for the host, and took so long for the events."""
    made = FrameRun.of(make_frame([]))
    made.waited_ns, made.events_ns = [waited_ns], events_ns
    return made


def rows_of(controller: Controller) -> Rows:
    """Return the rows of ``with_rows``."""
    assert isinstance(controller.rows, Rows)
    return controller.rows


def kept(controller: Controller) -> int:
    """Return the number of rows that are recorded."""
    return rows_of(controller).kept


def test_every_step_is_recorded_where_the_budget_affords_all_rows() -> None:
    """100 marks of a microsecond in steps of 20 ms are half of 1 %."""
    controller = with_rows(50, 30, 20)
    assert run(controller, 500, 20 * MS)[0] == list(range(1, 501))
    assert kept(controller) == 3


def test_rows_that_hold_least_time_are_dropped_first_and_every_step_is_still_recorded() -> None:
    """Of 400 marks of a microsecond in steps of 20 ms, half are affordable."""
    controller = with_rows(100, 60, 100, 140)
    recorded, _ = run(controller, 500, 20 * MS)
    assert recorded == list(range(1, 501))
    assert kept(controller) == 2


@pytest.mark.parametrize("step_ns", [20 * US, 200 * US, 700 * US])
def test_where_fewer_rows_are_not_enough_one_step_of_each_k_is_recorded(step_ns: int) -> None:
    """k is a power of two; over the run the overhead keeps the budget."""
    controller = with_rows(10, 5, 5)
    recorded, overhead = run(controller, 200_000, step_ns, own_ns=20 * US)
    k = controller.k
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
    controller = with_rows(50, 50)
    for step in range(1, 400):
        controller.record(100 * US + (500 * MS if step == 7 else 0), 20 * MS, 20 * MS)
        assert controller.gap(step) == 0
    assert kept(controller) == 2


def test_more_is_recorded_only_where_there_is_room() -> None:
    """Steps that become a little longer change nothing; those twice as long bring back steps, and later rows."""
    controller = with_rows(10, 10, 10)
    run(controller, 4_000, 400 * US)
    assert (controller.k, kept(controller)) == (4, 1)
    run(controller, 4_000, 500 * US)
    assert (controller.k, kept(controller)) == (4, 1)
    run(controller, 40_000, 1_600 * US)
    assert (controller.k, kept(controller)) == (1, 1)
    run(controller, 40_000, 20 * MS)
    assert (controller.k, kept(controller)) == (1, 3)


def test_where_the_device_never_waits_for_the_host_recording_costs_its_own_time_for_the_events() -> None:
    """The host's 5 ms in steps of 70 ms are hidden; 463 events of 2 µs are not, but half of them are affordable."""
    controller = with_rows(150, 150, 163)
    assert isinstance(controller.rows, Rows)
    for step in range(1, 200):
        controller.frames(device_run(waited_ns=20 * US, events_ns=2 * US * controller.rows.present))
        controller.record(5 * MS, 20 * MS, 70 * MS, 3 * MS)
        assert controller.gap(step) == 0
    assert kept(controller) == 2


def test_where_the_device_waits_for_the_host_recording_costs_the_hosts_work() -> None:
    """But no more than the device waits: of 2 ms at most half a millisecond makes a step of 20 ms longer."""
    waiting, queued = FakeController(), FakeController()
    for _ in range(200):
        for controller, waited_ns in ((waiting, 15 * MS), (queued, MS // 2)):
            controller.frames(device_run(waited_ns=waited_ns, events_ns=20 * US))
            controller.record(2 * MS, 20 * MS, 20 * MS)
    assert (waiting.k, queued.k) == (16, 4)


def test_the_cost_of_passes_is_saved_by_fewer_rows() -> None:
    """Marks of 100 µs and passes of 300 µs in steps of 20 ms: half of the rows stay."""
    controller = with_rows(10, 10)
    assert isinstance(controller.rows, Rows)
    for _ in range(400):
        controller.spend_on_rows(15 * US * controller.rows.present)
        controller.run.work(Part.STEPS, 15 * US * controller.rows.present)
        controller.record(5 * US * controller.rows.present, 20 * MS, 20 * MS)
    assert (controller.k, kept(controller)) == (1, 1)


@pytest.mark.parametrize(("own_us", "whole"), [(300, 110), (1000, 16), (20_000, 1)])
def test_a_short_run_is_recorded_whole_until_it_has_cost_11_ms_more_than_the_budget(own_us: int, whole: int) -> None:
    """Steps of 20 ms may cost 200 µs each: 100 µs too much in each of 110 steps do no harm."""
    controller = FakeController()
    recorded, _ = run(controller, 1000, 20 * MS, own_ns=own_us * US)
    assert recorded[:whole] == list(range(1, whole + 1))
    assert len(recorded) < 1000


def test_without_a_budget_everything_is_recorded() -> None:
    """Whatever it costs."""
    controller = with_rows(1_000, 1_000, budget=None)
    assert run(controller, 300, 10 * US)[0] == list(range(1, 301))
    assert kept(controller) == 2


def test_with_every_each_nth_step_is_recorded_from_the_first_one_on() -> None:
    """Without a budget just these; with one, each k-th of them."""
    assert run(FakeController(None, every=3), 14, MS)[0] == [1, 4, 7, 10, 13]
    controller = FakeController(every=3)
    recorded, _ = run(controller, 60_000, 200 * US, own_ns=30 * US)
    assert controller.k > 1
    late = recorded[-20:]
    assert {after - before for before, after in pairwise(late)} == {3 * controller.k}
    assert all(step % 3 == 1 for step in recorded)


def test_ranks_that_afford_different_parts_share_the_steps_of_the_largest_k() -> None:
    """And all record the same ones once they know each other's rate."""
    slow, fast = FakeController(), FakeController()
    few, _ = run(slow, 60_000, 200 * US, own_ns=60 * US)
    many, _ = run(fast, 60_000, 200 * US, own_ns=10 * US)
    late = [step for step in few if step > 30_000]
    assert slow.k > fast.k > 1
    assert set(late) < {step for step in many if step > 30_000}
    fast.agreed_rate, slow.agreed_rate = slow.affordable_rate, fast.affordable_rate
    assert [controller.gap(step) for controller in (slow, fast) for step in range(500)] == [
        slow.gap(step) for _ in range(2) for step in range(500)
    ]


def test_one_note_says_since_when_the_budget_leaves_steps_out() -> None:
    """However often it changes which ones are recorded."""
    controller = FakeController()
    assert controller.note_limit(10) is None
    controller.k = 2
    assert controller.note_limit(20) == "to keep the budget: from step 20 on, not every step is recorded"
    controller.k = 8
    assert controller.note_limit(52) is None


@pytest.mark.parametrize(
    ("marks", "own_us", "step_ms"),
    [(30_000, 2_000, 100), (1_200, 200, 80), (1_200, 200, 10), (90, 60, 10), (0, 500, 1)],
    ids=["10,000 modules", "an RNN of 400 cells", "a fast RNN", "a small model", "own work"],
)
def test_recording_60_steps_costs_at_most_1_percent_and_40_ms(marks: int, own_us: int, step_ms: int) -> None:
    """Marks of a microsecond in rows of the user's rules, which are not closed: few of these steps are recorded."""
    controller = FakeController()
    cost_ns, step = 0, 1
    while step <= 60:
        own_ns = own_us * US + marks * US
        cost_ns += own_ns
        controller.record(own_ns, step_ms * MS, step_ms * MS, marks * US)
        step += 1 + controller.gap(step)
    assert cost_ns <= 0.01 * 60 * step_ms * MS + 40 * MS


def option(name: str, share: float, marks: float, *, is_open: bool = False, inside: str | None = "model") -> RowOption:
    """Return a row inside the model that may be opened."""
    return RowOption(name, share, marks, is_open, stays=False, inside=inside)


MODEL = RowOption("model", 1.0, 10.0, stays=True)


@pytest.mark.parametrize(
    ("rest_ns", "limit_ns", "expected"),
    [
        (0.0, 200.0, (["model", "long", "part", "short"], 1)),
        (0.0, 115.0, (["model", "long"], 1)),  # without the long row nothing inside it is recorded
        (0.0, 60.0, (["model", "short"], 1)),  # the long one does not fit
        (50.0, 60.0, (["model"], 1)),
        (0.0, 4.0, (["model"], 4)),  # the model stays, whatever it costs
        (100.0, 60.0, (["model", "long", "short"], 4)),  # two, and twice two for the rows
        (300.0, 10.0, (["model", "long", "part", "short"], 64)),
    ],
)
def test_a_plan_opens_the_longest_rows_that_fit_and_leaves_steps_out_where_the_rest_does_not(
    rest_ns: float, limit_ns: float, expected: tuple[list[str], int]
) -> None:
    """Marks of a nanosecond: 10 in the model, 100 in the long row, 60 in the one inside it, 20 in the short one."""
    rows = [MODEL, option("long", 0.6, 100.0), option("part", 0.5, 60.0, inside="long"), option("short", 0.2, 20.0)]
    opened, k = plan(Cost(rest_ns, 1.0), limit_ns, rows)
    assert ([row.name for row in opened], k) == expected


def test_a_row_replaces_an_open_one_that_is_clearly_shorter() -> None:
    """The budget affords one of the two: the open one stays beside a row that is a fifth longer."""
    for share, name in ((0.36, "open"), (0.4, "other")):
        rows = [MODEL, option("open", 0.3, 50.0, is_open=True), option("other", share, 50.0)]
        assert [row.name for row in plan(Cost(0.0, 1.0), 80.0, rows)[0]] == ["model", name]


@pytest.mark.parametrize("own_us", [150, 190, 240, 300, 380, 760])
def test_noise_of_the_cost_changes_the_choice_a_few_times_only(own_us: int) -> None:
    """A cost that differs by a tenth from window to window, at and between the limits of k, beside rows of 200 µs."""
    controller, draw = with_rows(50, 50, 50, 50), random.Random(1)
    choices = []
    for step in range(20_000):
        if step % 50 == 0:
            noise = draw.uniform(0.9, 1.1)
        own_ns, marks_ns = round(noise * own_us * US), rows_of(controller).present * US
        controller.record(own_ns + marks_ns, 20 * MS, 20 * MS, marks_ns)
        choices.append((controller.k, rows_of(controller).kept))
    assert sum(before != after for before, after in pairwise(choices)) <= 6
    assert len(set(choices[10_000:])) == 1
