"""Unsampled steps: no module is marked, and the account stays complete."""

from collections import Counter
from typing import Any

import pytest
import torch
from attached import hooks_of, optimizer_hooks
from torch import nn

import autoprof
from autoprof import Phase
from autoprof.capture import recorder as recording
from autoprof.session import builder
from autoprof.session.account import Account
from autoprof.session.controller import Controller
from autoprof.testing import FakeClock, ListSink, open_session

EVERYTHING = {"targets": [{"match": ".*"}], "sinks": {}, "sample": {"warmup": 0}}
MANUAL = {**EVERYTHING, "step": "manual"}


class Scripted(Controller):
    """A controller that leaves the gaps it was given after the recorded steps, and notes the steps it is shown."""

    def __init__(self, *gaps: int) -> None:
        super().__init__(Account())
        self.shown: list[tuple[int, int, int]] = []
        self._steps = [1]
        for gap in gaps:
            self._steps.append(self._steps[-1] + gap + 1)

    def close(self, cost_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int | None = None) -> None:
        self.shown.append((cost_ns, cpu_ns, wall_ns))

    def next_recorded(self, step: int) -> int:
        return next((one for one in self._steps if one >= step), step)


@pytest.fixture
def govern(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that gives the next session these gaps."""

    def put(*gaps: int) -> Scripted:
        controller = Scripted(*gaps)
        monkeypatch.setattr(builder, "Controller", lambda *_args: controller)
        return controller

    return put


def model_and_optimizer() -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """Return a small model and what optimizes it."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Do what a step does, but for ending it."""
    loss: torch.Tensor = model(torch.ones(4, 2)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def hooked(model: nn.Module) -> int:
    """Count the hooks on a model."""
    return sum(len(hooks) for module in model.modules() for hooks in hooks_of(module).values())


def test_an_unsampled_step_makes_no_marks(govern: Any) -> None:
    """The hooks that report its events are all that is on the model; ``span`` finds nobody to write to."""
    govern(3)
    model, optimizer = model_and_optimizer()
    with autoprof.instrument(model, MANUAL) as session:
        train(model, optimizer)
        assert hooked(model) > 1
        for _ in range(3):
            session.step()
            assert hooked(model) == 1
            assert not optimizer_hooks()
            assert recording.active is None
            train(model, optimizer)
        session.step()
        assert hooked(model) > 1
        train(model, optimizer)


def test_step_numbers_go_on_over_a_gap(govern: Any) -> None:
    """Steps 1, 2, then three unsampled, 6, then one, 8."""
    govern(0, 3, 1)
    model, optimizer = model_and_optimizer()
    sink = ListSink()
    with autoprof.instrument(model, MANUAL, sinks=[sink]) as session:
        for _ in range(8):
            train(model, optimizer)
            session.step()
    assert [(f.step, f.gap_steps) for f in sink.frames] == [(1, 0), (2, 0), (6, 3), (8, 1)]
    assert sink.summary is not None
    assert (sink.summary.steps, sink.summary.warmup_steps, sink.summary.unsampled_steps) == (4, 0, 4)
    assert sink.summary.unsampled_ns == sum(f.gap_ns for f in sink.frames) > 0


def test_without_step_optimizer_steps_count_a_gap(govern: Any) -> None:
    """The recorded steps are as whole as without a gap, and bear the right numbers."""
    govern(0, 3, 0)
    model, optimizer = model_and_optimizer()
    sink = ListSink()
    with autoprof.instrument(model, EVERYTHING, optimizer=optimizer, sinks=[sink]):
        for _ in range(8):
            train(model, optimizer)
    assert [f.step for f in sink.frames] == [1, 2, 6, 7, 8]
    for frame in sink.frames:
        assert [s.name for s in frame.spans if s.phase is Phase.FORWARD] == ["Sequential", "0", "1", "1/0", "1/1"]
        assert sum(s.name == "Optimizer" for s in frame.spans) == 1


def test_time_in_a_gap_is_training_time(govern: Any) -> None:
    """The share of autoprof's own work is of all steps; a pause belongs to none of them."""
    govern(2)
    model, optimizer = model_and_optimizer()
    sink = ListSink()
    clock = FakeClock()
    with open_session(model, MANUAL, sinks=[sink], clock=clock) as session:
        session.step()
        clock.advance(70)
        session.step()
        with session.pause():
            clock.advance(1_000_000)
        clock.advance(30)
        session.step()
        train(model, optimizer)
        session.step()
    assert [f.gap_ns for f in sink.frames] == [0, 100]


@pytest.mark.parametrize("config", [MANUAL, EVERYTHING], ids=["manual", "auto"])
def test_what_follows_a_loop_that_ends_in_a_gap_is_no_part_of_it(govern: Any, config: Any) -> None:
    """A figure is drawn for a second; no unsampled step is longer than the one before it."""
    govern(5)
    clock = FakeClock()
    model, optimizer = model_and_optimizer()
    with open_session(model, config, clock=clock) as session:
        for _ in range(4):
            clock.advance(100)
            train(model, optimizer)
            if config is MANUAL:
                session.step()
        clock.advance(1_000_000_000)
    summary = session.summary()
    assert (summary.unsampled_steps, summary.unsampled_ns) == (3, 300)


@pytest.mark.parametrize("config", [MANUAL, EVERYTHING], ids=["manual", "auto"])
def test_a_summary_in_a_gap_counts_the_steps_so_far(govern: Any, config: dict[str, Any]) -> None:
    """So the cost of recording is a share of all steps; later summaries count none of them twice."""
    govern(6)
    model, optimizer = model_and_optimizer()
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        seen = []
        for _ in range(9):
            train(model, optimizer)
            if config is MANUAL:
                session.step()
            summary = session.summary()
            seen.append((summary.steps, summary.unsampled_steps))
    begins = seen.index((1, 1))
    assert seen[begins : begins + 5] == [(1, at) for at in range(1, 6)]
    assert session.summary().unsampled_steps == 6


def test_a_run_of_tiny_steps_keeps_to_its_budget_and_changes_no_bit(caplog: pytest.LogCaptureFixture) -> None:
    """Most of 3,000 steps of a few microseconds are unsampled, and nothing is printed meanwhile."""
    torch.manual_seed(0)
    bare, optimizer = model_and_optimizer()
    for _ in range(3000):
        train(bare, optimizer)
    torch.manual_seed(0)
    model, optimizer = model_and_optimizer()
    sink = ListSink()
    with autoprof.instrument(model, {**EVERYTHING, "sample": {"budget": 0.005}}, sinks=[sink]):
        for _ in range(3000):
            train(model, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), model.parameters(), strict=True))
    assert sink.summary is not None
    assert sink.summary.unsampled_steps > 1000
    (note,) = sink.summary.notes
    assert note.startswith("to keep the budget: from step ")
    assert "budget" not in caplog.text
    summary, skipped = sink.summary, sum(sink.summary.skipped.values())  # those before a change of level
    assert summary.steps + summary.warmup_steps + summary.unsampled_steps + skipped == 3000


def test_between_far_recorded_steps_updates_count_the_steps_and_validation_is_excluded(govern: Any) -> None:
    """The hooks that report events come off, and return for ``eval()`` and for the next recorded step."""
    govern(20, 20)
    clock, model, optimizer, bare = FakeClock(), *model_and_optimizer(), torch.autograd.backward
    asleep = []
    with open_session(model, EVERYTHING, clock=clock, optimizer=optimizer) as session:
        for step in range(43):
            clock.advance(100)
            train(model, optimizer)
            asleep.append(torch.autograd.backward is bare and not optimizer._optimizer_step_pre_hooks)
            if step == 10:
                model.eval()
                with torch.no_grad():
                    model(torch.ones(1, 2))
                clock.advance(5_000)
                model.train()
    summary = session.summary()
    assert sum(asleep) > 30
    assert not asleep[0]
    assert (summary.steps, summary.unsampled_steps) == (3, 40)
    (validation,) = summary.stages
    assert (validation.name, summary.unsampled_ns + validation.total_ns) == ("validation", 9_000)
    assert validation.total_ns >= 5_000
    assert not summary.notes


def recorded_steps(k: int, most: int = 4_096) -> list[int]:
    """Return the steps that a controller records that affords one of ``k``."""
    controller = Controller(Account())
    controller.k = k
    step, recorded = controller.next_recorded(1), []
    while step <= most:
        recorded.append(step)
        step = controller.next_recorded(step + 1)
    return recorded


@pytest.mark.parametrize("rhythm", [2, 3, 4, 8, 10, 16])
def test_recorded_steps_follow_no_rhythm_of_the_program(rhythm: int) -> None:
    """Of a program that does something each so many steps, every part of the rhythm is recorded about as often."""
    recorded = recorded_steps(4)
    assert len(recorded) == 1_024
    parts = Counter(step % rhythm for step in recorded)
    assert all(parts[part] == pytest.approx(len(recorded) / rhythm, rel=0.3) for part in range(rhythm))


def test_ranks_that_afford_different_parts_share_the_steps_of_the_smallest() -> None:
    """The one step of each sixteen is one of those of each eight, and so on."""
    for k in (1, 2, 4, 8):
        assert set(recorded_steps(2 * k)) <= set(recorded_steps(k))
