"""A session: where steps end, what belongs to them, and what set-up, pause and close leave behind."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import hooks_of, is_marked
from engine_laws import Watched, check_laws, count, everything, tree
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import autoprof
from autoprof import AutoprofError, ConfigError, Phase, SessionError, TargetError, span
from autoprof.base.stats import Aggregate
from autoprof.capture import recorder as recording
from autoprof.testing import FakeClock, open_session

AUTO = everything(step="auto")


def mlp() -> nn.Sequential:
    """Return a small model."""
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def train(model: nn.Module, optimizer: Any) -> torch.Tensor:
    """Do what a step does, but for ending it."""
    loss = model(torch.ones(4, 2)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of the model's."""
    return torch.optim.SGD(model.parameters(), lr=0.01)


# Where steps end.


def test_step_ends_a_step() -> None:
    """The convention of ``torch.profiler``; steps count from 1 and join without a gap."""
    clock = FakeClock(start_ns=100)
    with Watched(mlp(), clock=clock) as watched:
        for ns in (5, 7, 0):
            clock.advance(ns)
            watched.step()
    assert [(f.step, f.duration_ns) for f in watched.frames] == [(1, 5), (2, 7), (3, 0)]


def test_logging_after_the_optimizer_belongs_to_the_step() -> None:
    """Scalars and spans between the optimizer and the next fetch."""
    model = mlp()
    optimizer = sgd(model)
    with Watched(model, config=AUTO, optimizer=optimizer) as watched:
        for i in range(2):
            train(model, optimizer)
            with span("logging"):
                watched.session.log(loss=i)
    assert [f.scalars["loss"] for f in watched.sink.frames] == [0.0, 1.0]
    assert [count(f, Phase.USER)["logging"] for f in watched.sink.frames] == [1, 1]


def test_the_first_explicit_step_makes_the_session_manual() -> None:
    """From then on nothing else ends a step."""
    model = mlp()
    optimizer = sgd(model)
    with Watched(model, config=AUTO, optimizer=optimizer) as watched:
        train(model, optimizer)
        watched.step()
        train(model, optimizer)
        train(model, optimizer)
        watched.step()
    assert [count(f, Phase.FORWARD)["Sequential"] for f in watched.frames] == [1, 2]


@pytest.mark.parametrize("keyword", [False, True])
def test_what_a_closure_runs_is_not_the_optimizers_time(*, keyword: bool) -> None:
    """Lightning trains in a closure: a wait in it is unattributed, and its modules are beside the optimizer."""

    class Optimizer(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            clock.advance(1_000)
            loss = closure()
            clock.advance(2_000)
            return loss

    clock, model = FakeClock(), mlp()
    optimizer = Optimizer(model.parameters(), 0.1)

    def closure() -> torch.Tensor:
        clock.advance(50_000)
        loss = model(torch.ones(4, 2)).pow(2).sum()
        loss.backward()
        return loss

    with Watched(model, clock=clock, optimizer=optimizer) as watched:
        for _ in range(2):
            optimizer.step(closure=closure) if keyword else optimizer.step(closure)
            watched.step()
    frame = watched.frames[1]
    check_laws(frame)
    assert count(frame, Phase.OPTIMIZER) == {"Optimizer": 1}
    assert [span.host_ns for span in frame.spans if span.name == "Optimizer"] == [1_000, 2_000]
    assert frame.duration_ns - sum(span.host_ns for span in frame.spans if span.parent is None) == 50_000


# Sampling, warm-up, pauses.


def test_warm_up_steps_are_kept_apart() -> None:
    """They reach the sinks, marked, and no statistic."""
    clock = FakeClock()
    with Watched(mlp(), clock=clock, config=everything(sample={"warmup": 2, "budget": None})) as watched:
        for ns in (1_000, 900, 5, 6):
            clock.advance(ns)
            watched.step()
        summary = watched.session.summary()
    assert [f.warmup for f in watched.frames] == [True, True, False, False]
    assert (summary.steps, summary.warmup_steps, summary.total_step_ns) == (2, 2, 11)


def test_what_happens_in_a_pause_is_charged_to_no_step() -> None:
    """Neither its time nor its calls; what lies around it keeps its own."""
    clock = FakeClock()
    model = mlp()
    with Watched(model, clock=clock) as watched:
        with span("around"):
            clock.advance(10)
            with watched.session.pause():
                clock.advance(5_000)
                model(torch.ones(1, 2))
                with span("validation"):
                    clock.advance(100)
            clock.advance(3)
        clock.advance(1)
        watched.step()
    (frame,) = watched.frames
    check_laws(frame)
    assert frame.duration_ns == 14
    assert [(s.name, s.host_ns) for s in frame.spans] == [("around", 13)]


# Scalars.


def test_scalars_are_numbers_and_tensors_of_one_element() -> None:
    """Of any type; a later value replaces an earlier one of its step."""
    with Watched(mlp()) as watched:
        watched.session.log(loss=torch.tensor(1.5), lr=1, samples=torch.tensor([[8]]), ok=True)
        watched.session.log(loss=torch.tensor(2.5, requires_grad=True))
        watched.step()
        watched.step()
    assert watched.frames[0].scalars == {"loss": 2.5, "lr": 1.0, "samples": 8.0, "ok": 1.0}
    assert watched.frames[1].scalars == {}


def test_values_that_are_no_scalars_are_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The step goes on, with the good ones."""
    with Watched(mlp()) as watched, caplog.at_level(logging.WARNING, "autoprof"):
        for _ in range(3):
            watched.session.log(good=1, text="high", many=torch.ones(2), nothing=None, thing=object())
            watched.step()
        summary = watched.session.summary()
    assert [f.scalars for f in watched.frames] == [{"good": 1.0}] * 3
    left_out = [record for record in caplog.records if record.getMessage().startswith("session.log: ")]
    assert len(left_out) == 4
    assert len([note for note in summary.notes if note.startswith("session.log: ")]) == 4


# The end.


def test_everything_but_step_may_be_called_after_close() -> None:
    """A loop's tail need not know."""
    model = mlp()
    watched = Watched(model)
    loader = watched.session.loader([1, 2])
    watched.session.close()
    watched.session.log(loss=1)
    with watched.session.pause():
        pass
    assert list(loader) == [1, 2]
    assert list(watched.session.loader([3])) == [3]
    watched.session.summary()
    assert not is_marked(model)


def test_a_session_is_a_context_manager_that_closes_on_errors_too() -> None:
    """The error leaves unchanged."""
    model = mlp()
    with pytest.raises(KeyError), open_session(model, everything(), clock=FakeClock()):
        raise KeyError
    assert not is_marked(model)


# Set-up.


@pytest.mark.parametrize("other", ["the model", "a part", "a whole"])
def test_a_session_closes_the_one_that_is_open_on_the_same_modules(other: str) -> None:
    """A notebook's cell runs again: its first session ends with its report, and the second one says so."""
    model = mlp()
    again = {"the model": model, "a part": model[0], "a whole": nn.Sequential(model, nn.Linear(1, 1))}[other]
    first = Watched(model)
    first.step()
    with Watched(again) as second:
        second.step()
    assert first.sink.summary is not None
    assert first.sink.summary.steps == 1
    assert second.sink.summary is not None
    assert any("instrumented again" in note for note in second.sink.summary.notes)
    assert not any(hooks for module in again.modules() for hooks in hooks_of(module).values())


def inert(session: autoprof.Session, model: nn.Module) -> None:
    """Assert that a session does nothing at all."""
    optimizer = sgd(model)
    assert not any(hooks for module in model.modules() for hooks in hooks_of(module).values())
    assert recording.active is None
    for batch in session.loader([torch.ones(1, 2)]):
        model(batch).sum().backward()
        optimizer.step()
        with session.pause():
            session.log(loss=1)
        session.step()
    assert session.summary().steps == 0
    session.close()
    session.step()
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("value", [None, "0", "off", "FALSE", " no "])
def test_configuration_and_environment_switch_everything_off(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hooks, no folder, no errors; the environment does it whatever the configuration says."""
    if value is not None:
        monkeypatch.setenv("AUTOPROF", value)
    model = mlp()
    inert(autoprof.instrument(model, {"enabled": False} if value is None else everything(sinks={"log": {}})), model)


class NoOptimizer:
    """Not an optimizer."""


@pytest.mark.parametrize(
    ("config", "more", "error"),
    [
        ({"target": []}, {}, ConfigError),
        ("no/such/file.yaml", {}, ConfigError),
        ({"targets": [{"match": "nothing"}]}, {}, TargetError),
        ({"functions": [{"path": "timed_target:nothing", "name": "x"}]}, {}, TargetError),
        ({}, {"optimizer": NoOptimizer()}, SessionError),
        ({"output": "/proc/nowhere"}, {}, AutoprofError),
    ],
)
def test_a_failure_in_set_up_leaves_nothing(config: Any, more: Any, error: type[Exception]) -> None:
    """No hook, no folder, no open session, no function wrapped."""
    model = mlp()
    with pytest.raises(error):
        autoprof.instrument(model, config, **more)
    assert not any(hooks for module in model.modules() for hooks in hooks_of(module).values())
    assert list(Path().iterdir()) == []


# The loader.


def test_a_loader_stays_the_loader_it_was() -> None:
    """Length, type, attributes read and written, indexing."""
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=5)
    with Watched(mlp()) as watched:
        timed = watched.session.loader(loader)
        assert len(timed) == 2
        assert isinstance(timed, DataLoader)
        assert timed.batch_size == 5
        timed.mine = 3
        assert loader.mine == 3
        assert [len(batch[0]) for batch in timed] == [5, 5]
        assert [len(batch[0]) for batch in timed] == [5, 5]
        assert watched.session.loader([7, 8, 9])[1] == 8


def test_an_error_of_the_loader_leaves_unchanged() -> None:
    """Its span ends."""

    class Broken(IterableDataset):
        def __iter__(self) -> Any:
            yield 1
            raise KeyError("corrupt")

    with Watched(mlp()) as watched:
        with pytest.raises(KeyError, match="corrupt"):
            list(watched.session.loader(Broken()))
        with span("after"):
            pass
        watched.step()
    assert tree(watched.frames[0]) == ["Data data", "Data data", "after user"]


# Failures of our own.


def test_a_failure_of_ours_in_a_step_is_said_once_and_switches_recording_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on, the model is bare, and close closes."""
    from autoprof.session.pipeline import Pipeline

    failures = []

    def fails(*_: Any, **__: Any) -> Any:
        failures.append(1)
        raise ValueError("a bug")

    model = mlp()
    with caplog.at_level(logging.WARNING, "autoprof"), Watched(model) as watched:
        model(torch.ones(1, 2))
        with monkeypatch.context() as broken:
            broken.setattr(Pipeline, "submit", fails)
            for _ in range(5):
                model(torch.ones(1, 2)).sum().backward()
                watched.step()
                assert not is_marked(model)
                assert recording.active is None
    assert len(failures) == 1
    assert len([r for r in caplog.records if "recording is off" in r.message]) == 1


def test_a_failure_of_ours_at_the_end_does_not_reach_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """``close`` takes the hooks off, closes the sinks and returns."""

    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError("a bug")

    model = mlp()
    watched = Watched(model)
    watched.step()
    monkeypatch.setattr(Aggregate, "summary", fails)
    watched.session.close()
    assert not is_marked(model)
    assert watched.sink.summary is not None
