"""Without targets a session opens the rows that hold most time, keeps its rows honest, and changes no result."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from engine_laws import check_laws, pass_on_each_step
from torch import Tensor, nn

import autoprof
from autoprof.base.frame import FrameRun, Phase, Span
from autoprof.base.summary import Row, Summary
from autoprof.session import controller
from autoprof.session.account import RECORDING, TABLE
from autoprof.session.controller import Controller, Cost, plan
from autoprof.session.module_rows import ModuleRows
from autoprof.session.session_probes import TargetSet
from autoprof.sinks import load_config
from autoprof.targets import first_cut, group_tree, select_targets
from autoprof.testing import FakeClock, ListSink, make_frame, open_session
from tests.accounts import FakeRun

DEFAULT: dict[str, Any] = {"step": "manual", "sample": {"warmup": 0, "budget": None}, "flops": "off", "sinks": {}}
"""No targets, explicit steps, every step recorded."""


@pytest.fixture(autouse=True)
def each_step_is_passed_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass a step on at its end: the fake steps are shorter than the time between two passes."""
    pass_on_each_step(monkeypatch)


class Busy(nn.Module):
    """A leaf that takes so long."""

    def __init__(self, clock: FakeClock, ns: int) -> None:
        super().__init__()
        self.clock, self.ns = clock, ns
        self.weight = nn.Parameter(torch.zeros(ns % 97 + 1))  # blocks of other lengths have another structure

    def forward(self, x: Tensor) -> Tensor:
        self.clock.advance(self.ns)
        return x * (1 + self.weight.sum())


class Nest(nn.Module):
    """A module that calls its children in turn, and takes ``ns`` itself."""

    def __init__(self, clock: FakeClock, ns: int = 0, **children: nn.Module) -> None:
        super().__init__()
        self.clock, self.ns = clock, ns
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x: Tensor) -> Tensor:
        self.clock.advance(self.ns)
        for child in self._modules.values():
            assert child is not None
            x = child(x)
        return x


def deep(clock: FakeClock, depth: int, ns: int = 100_000) -> nn.Module:
    """Return a module that takes ``ns``, ``depth`` levels deep, beside thirty small ones on each level."""
    inner: nn.Module = Busy(clock, ns)
    for _ in range(depth):
        inner = Nest(clock, 1, hot=inner, **{f"cold{i}{'x' * i}": Nest(clock, a=Busy(clock, i)) for i in range(30)})
    return inner


def rows_of(summary: Summary, phase: Phase = Phase.FORWARD) -> dict[str, Row]:
    """Return the rows of a phase by name."""
    return {row.name: row for row in summary.rows if row.phase is phase}


def train(session: autoprof.Session, model: nn.Module, steps: int) -> None:
    """Run so many steps."""
    for _ in range(steps):
        model(torch.ones(1)).sum().backward()
        session.step()


def test_a_hot_leaf_is_reached_within_a_few_steps() -> None:
    """Level after level, whatever lies beside it; the small rows stay closed and say so."""
    clock = FakeClock()
    model = deep(clock, 6)
    with open_session(model, DEFAULT, clock=clock) as session:
        train(session, model, 12)
    rows = rows_of(session.summary())
    assert rows["hot/hot/hot/hot/hot/hot"].self_ns > 0.5 * session.summary().total_step_ns
    assert rows["hot/hot/hot/hot/hot/hot"].stopped == "leaf"
    assert rows["hot/hot"].stopped is None
    assert rows["hot/hot/cold3xxx"].stopped == "small"
    assert "hot/hot/cold3xxx/a" not in rows
    assert "hot/hot/hot/hot/hot/hot" in {target.name for target in session.targets}


def test_rows_of_a_changing_cut_close_to_the_nanosecond() -> None:
    """On each frame, and in the summary, children and self make the parent."""
    clock, sink = FakeClock(), ListSink()
    model = deep(clock, 5)
    with open_session(model, DEFAULT, clock=clock, sinks=[sink]) as session:
        train(session, model, 20)
    for frame in sink.frames:
        check_laws(frame)
    assert len({frame.cut for frame in sink.frames}) > 1
    summary = session.summary()
    assert summary.steps + summary.warmup_steps + sum(summary.skipped.values()) == 20
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        rows = rows_of(summary, phase)
        for row in rows.values():
            inside = sum(child.total_ns for child in rows.values() if child.parent == row.name)
            assert row.total_ns == row.self_ns + inside
            assert row.share == row.total_ns / summary.total_step_ns
    assert sum(summary.phases.values()) == summary.total_step_ns


def test_rows_are_opened_after_the_program_has_replaced_a_module() -> None:
    """Its row has no more calls; the recording goes on, and other rows are opened."""
    clock, sink = FakeClock(), ListSink()
    model = Nest(clock, old=deep(clock, 3, 1_000), hot=deep(clock, 6))
    with open_session(model, DEFAULT, clock=clock, sinks=[sink]) as session:
        train(session, model, 2)
        model.old = Busy(clock, 1)
        gc.collect()
        train(session, model, 20)
        assert "hot/hot/hot/hot/hot/hot/hot" in {target.name for target in session.targets}
    assert len(sink.frames) == 22
    assert not any("ReferenceError" in note for note in session.summary().notes)


class Late(nn.Module):
    """Two branches of which the second takes long only from a step on."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.first, self.second = deep(clock, 3), deep(clock, 3, 100_001)
        self.late = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.second(x) if self.late else x


def test_a_row_that_grows_later_is_opened_then() -> None:
    """A branch that was never called before is opened when it takes most of the step."""
    clock = FakeClock()
    model = Late(clock)
    with open_session(model, DEFAULT, clock=clock) as session:
        train(session, model, 40)
        assert "second/hot/hot/hot" not in {target.name for target in session.targets}
        model.late = True
        train(session, model, 200)
        assert "second/hot/hot/hot" in {target.name for target in session.targets}


class Followed:
    """The rows of a model, and the controller of a run that may spend this part of its time on recording."""

    def __init__(self, model: nn.Module, rate: float | None, mark_ns: float) -> None:
        self.model, self.mark_ns = model, mark_ns
        tree = group_tree(model)

        def make_set(groups: Any, number: int) -> TargetSet:
            return TargetSet((), tuple(target for group in groups for target in group.targets()), number)

        self.rows = ModuleRows(tree, first_cut(tree), make_set)
        shares = sum(TABLE[part].share for part in RECORDING)
        self.controller = Controller(FakeRun(None if rate is None else rate / shares).account, mark_ns=mark_ns)
        self.controller.rows = self.rows

    def measure(self, times: dict[str, int], step: int) -> None:
        """Pass on a frame in which the groups of the present cut take these times, one forward span each."""
        spans: list[Span] = []
        places: dict[str, int] = {}
        for group in self.rows.groups:
            parent = places.get(group.name.rpartition("/")[0], 0 if spans else None)
            places[group.name] = len(spans)
            spans.append(Span(group.name, group.name, Phase.FORWARD, parent, 0, times.get(group.name, 0)))
        frame = make_frame(spans, step=step, duration_ns=max(times.values()), cut=self.rows.chosen.number)
        self.rows.frames(FrameRun.of(frame))

    def record(self, times: dict[str, int], step: int) -> None:
        """Record a step of these times. A mark costs twice its calibrated cost, with its resolution."""
        cost_ns, step_ns = round(2 * self.mark_ns * self.marks), max(times.values())
        self.measure(times, step)
        self.controller.close(cost_ns, step_ns, step_ns)

    @property
    def marks(self) -> float:
        """The marks in a step."""
        return sum(row.marks for row in self.rows.options if row.is_open)

    @property
    def opened(self) -> set[str]:
        """The opened rows."""
        return {name for name, stopped in self.rows.stopped.items() if stopped is None}


def wide() -> nn.Module:
    """Return a model with two hot blocks of ten modules each, deeper than the first cut."""
    clock = FakeClock()

    def block(base: int) -> nn.Module:
        return Nest(clock, inner=Nest(clock, **{f"m{'x' * i}": Busy(clock, base + i) for i in range(30)}))

    return Nest(clock, one=block(1), two=block(40))


TIMES = {"Nest": 100_000, "one": 60_000, "one/inner": 59_000, "two": 38_000, "two/inner": 37_000}


def test_a_row_that_is_too_expensive_to_open_says_so() -> None:
    """Of two rows that take long only the longer one is opened where the budget does not allow both."""
    model = wide()
    dear = Followed(model, 0.01, 20.0)  # 96 ns a call with its resolution, 0.8 % of 100 µs: 8 calls
    for step in range(20):
        dear.record(TIMES, step)
    assert dear.rows.stopped["one/inner"] == "budget"
    assert len(dear.rows.groups) <= 40
    cheap = Followed(model, 0.01, 1.0)
    for step in range(20):
        cheap.record(TIMES, step)
    assert cheap.rows.stopped["one/inner"] is None
    assert cheap.rows.stopped["two/inner"] is None


def test_the_smallest_rows_are_closed_where_the_budget_does_not_afford_the_cut() -> None:
    """Down to the groups that a run begins with; they are opened again, the longest first, where there is room."""
    followed = Followed(wide(), None, 1.0)
    rows = followed.rows

    def fit(share: float) -> float:
        """Choose rows of at most this share of the present marks, as each measurement shows; return their share."""
        before, limit = followed.marks, share * followed.marks
        for step in range(6):
            followed.measure(TIMES, step)
            rows.use(plan(Cost(0.0, 1.0), limit, rows.options)[0])
        return followed.marks / before

    for step in range(6):
        followed.record(TIMES, step)
    assert followed.opened == {"Nest", "one", "two", "one/inner", "two/inner"}
    assert fit(0.9) < 0.9
    assert followed.opened == {"Nest", "one", "two", "one/inner"}
    assert rows.stopped["two/inner"] == "budget"
    assert fit(0.01) < 0.5
    assert followed.opened == {"Nest", "one", "two"}
    assert fit(0.5) == 1.0
    assert fit(8.0) > 1.0
    assert followed.opened == {"Nest", "one", "two", "one/inner"}


def test_rules_are_recorded_whatever_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget chooses among steps there, and drops no row that the user has named."""
    monkeypatch.setattr(controller, "FIRST_RECORDING_NS", 0)  # else the first steps are recorded at any cost
    model, sink = nn.Sequential(*(nn.Linear(2, 2) for _ in range(40))), ListSink()
    config = {"targets": [{"match": ".*"}], "sinks": {}, "step": "manual", "flops": "off", "sample": {"budget": 1e-6}}
    with autoprof.instrument(model, config, sinks=[sink]) as session:
        for _ in range(100):
            model(torch.ones(1, 2)).sum().backward()
            session.step()
    assert len(sink.frames) < 100
    assert {sum(s.phase is Phase.FORWARD for s in frame.spans) for frame in sink.frames} == {41}


@pytest.mark.parametrize("mark_ns", [16.0, 4.6])
def test_a_row_at_the_limit_does_not_flap(mark_ns: float) -> None:
    """Noise around a threshold changes the cut a few times, not forever."""
    followed = Followed(wide(), 0.01, mark_ns)
    cuts = []
    for step in range(2000):
        noise = 1.0 + 0.3 * ((step * 7919) % 13 - 6) / 6
        times = {name: round(ns * (noise if name.startswith("one") else 1.0)) for name, ns in TIMES.items()}
        followed.record(times | {"Nest": 120_000}, step)
        cuts.append(followed.rows.chosen.number)
    assert cuts[-1] == cuts[200]
    assert cuts[-1] <= 16


def test_the_cut_is_written_to_the_runs_folder_and_selects_the_same(tmp_path: Path) -> None:
    """``targets.yaml`` loads as a configuration with the targets of the session."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = {"output": str(tmp_path), "sinks": {"jsonl": {}}, "sample": {"budget": None}, "flops": "off"}
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        for _ in range(30):
            model(torch.randn(64, 64)).sum().backward()
            optimizer.step()
    (folder,) = tmp_path.iterdir()
    chosen = select_targets(model, load_config(folder / "targets.yaml"))
    assert {(one.fqn, one.name) for one in chosen} == {(one.fqn, one.name) for one in session.targets}


@pytest.mark.parametrize("whole", [False, True])
def test_opening_rows_compiles_nothing_again(whole: bool) -> None:
    """Hooks that come and go with the cut leave compiled graphs as they are, and none lies inside one."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    hot = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(4)))
    parts = nn.Sequential(nn.Sequential(hot, nn.Linear(16, 16)), nn.Linear(16, 1))
    model: Any = torch.compile(parts, backend=counter) if whole else parts
    if not whole:
        parts[0][0] = torch.compile(hot, backend=counter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autoprof.instrument(model, {"sinks": {}, "sample": {"budget": None}}, optimizer=optimizer) as session:
        for _ in range(40):
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        compiled = counter.frame_count
        names = {target.name for target in session.targets}
    names = {row.name for row in session.summary().rows}
    assert compiled == 1
    assert not any("_orig_mod" in name or name.startswith("0/0/") for name in names)
