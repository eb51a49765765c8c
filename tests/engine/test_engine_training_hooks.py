"""The hooks that report a program's events: which are attached, what they report, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer

import autoprof
from autoprof._capture.recorder import Recorder
from autoprof._session import events
from autoprof._session.training_hooks import MAX_OWNERS, TrainingHooks
from autoprof.summary import UNGRADED
from autoprof.testing import FakeClock

X = torch.ones(1, 2)


@pytest.fixture(autouse=True)
def hooks_in() -> None:
    """Run each test once: no mark of a module is made here."""


class Net(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Any:
        return self.second(self.first(x))


class Steps:
    """Steps that keep the events, and decide what the test says."""

    def __init__(self, auto: bool) -> None:
        self.detector = SimpleNamespace(auto=auto, thread=get_ident())
        self.detector.is_excluding = self.detector.is_updating = self.detector.is_validating = False
        self.detector.expects_backward = True
        self.is_recording, self.is_off, self.is_excluded, self.position = True, False, False, 4
        self.events: list[Any] = []
        self.decisions: list[Any] = []
        self.updated: bool | None = None

    def report(self, event: Any) -> list[Any]:
        self.events.append(event)
        decisions, self.decisions = self.decisions, []
        return decisions

    def start(self) -> None:
        self.events.append("start")

    def finish(self, *, updated: bool, patient: bool) -> None:
        self.updated = updated

    def block_begins(self) -> None:
        self.events.append("block begins")

    def block_ends(self) -> None:
        self.events.append("block ends")

    def kinds(self) -> list[str]:
        """Return the names of the events' kinds, and forget them."""
        kinds = [event if isinstance(event, str) else type(event).__name__ for event in self.events]
        self.events.clear()
        return kinds


class Bench:
    """A model with hooks."""

    def __init__(self, optimizers: tuple[Any, ...] = (), *, auto: bool = True, **more: Any) -> None:
        self.model = Net()
        self.optimizer = sgd(self.model)
        self.steps = Steps(auto)
        self.recorder = Recorder(FakeClock())
        self.hooks = TrainingHooks(self.model, optimizers, self.steps, self.recorder, **more)  # type: ignore[arg-type]
        self.hooks.start()
        assert self.steps.kinds() == ["start"]

    def last(self, kind: type) -> Any:
        """Return the last event of a kind."""
        return [event for event in self.steps.events if isinstance(event, kind)][-1]


def sgd(*modules: nn.Module) -> Any:
    """Return an optimizer of these modules."""
    return torch.optim.SGD([one for module in modules for one in module.parameters()], lr=0.01)


@pytest.fixture
def bench() -> Iterator[Any]:
    """Return a function that makes a bench; at the end nothing of it is left."""
    made: list[Bench] = []
    backward, grad = torch.autograd.backward, torch.autograd.grad

    def make(*arguments: Any, **more: Any) -> Bench:
        made.append(Bench(*arguments, **more))
        return made[-1]

    yield make
    for one in made:
        one.hooks.remove()
        one.steps.events.clear()
        one.model(X).sum().backward()
        assert one.steps.events == []
    assert not torch_optimizer._global_optimizer_pre_hooks
    assert not torch_optimizer._global_optimizer_post_hooks
    assert (torch.autograd.backward, torch.autograd.grad) == (backward, grad)


def test_an_iteration_is_a_forward_a_backward_pass_and_an_update(bench: Any) -> None:
    """In their order, with the mode of the model and whether gradients are enabled."""
    one = bench()
    one.model(X).sum().backward()
    one.optimizer.step()
    assert one.last(events.ForwardBegins)[1:4] == (True, True, True)
    assert one.last(events.UpdateEnds).position == 4
    assert one.steps.kinds() == ["ForwardBegins", "BackwardBegins", "BackwardEnds", "UpdateEnds"]
    one.model.eval()
    with torch.no_grad():
        one.model(X)
    assert one.last(events.ForwardBegins)[1:4] == (True, False, False)


def test_the_begin_of_an_update_is_an_event_where_something_happens_inside_it(bench: Any) -> None:
    """A closure, or another optimizer. One that an exception ended is not the one around the next."""
    one = bench()

    def fail() -> None:
        raise ValueError("the closure's")

    with pytest.raises(ValueError, match="the closure's"):
        one.optimizer.step(fail)
    one.optimizer.step(lambda: one.model(X).sum())
    assert one.steps.kinds() == ["UpdateBegins", "ForwardBegins", "UpdateEnds"]


def test_optimizers_that_were_named_are_the_only_ones_hooked(bench: Any) -> None:
    """They are the model's, whatever they hold."""
    named = sgd(Net())
    one = bench((named,))
    one.optimizer.step()
    assert one.steps.kinds() == []
    named.step()
    assert one.last(events.UpdateEnds).owned
    one.hooks.remove()
    assert not named._optimizer_step_post_hooks
    assert not named._optimizer_step_pre_hooks


def test_an_optimizer_is_the_models_where_it_holds_its_parameters(bench: Any) -> None:
    """Where none does, as with copies of the parameters, all are."""
    one, other = bench(), sgd(Net())
    one.hooks.update_ends(SimpleNamespace())
    assert one.last(events.UpdateEnds).owned
    one.optimizer.step()
    assert one.last(events.UpdateEnds).owned
    other.step()
    assert not one.last(events.UpdateEnds).owned


def test_of_a_limited_number_of_optimizers_is_remembered_whose_they_are(bench: Any) -> None:
    """A program that makes a new one for each step keeps the first ones."""
    one = bench()
    others = [sgd(one.model.first) for _ in range(MAX_OWNERS)]
    assert one.hooks._owns(one.optimizer)
    assert [one.hooks._owns(other) for other in others] == [True] * (MAX_OWNERS - 1) + [False]
    assert one.hooks._owns(one.optimizer)


def test_after_a_call_of_step_no_update_is_reported(bench: Any) -> None:
    """Steps end only by such calls from then on."""
    one = bench()
    one.hooks.step()
    one.steps.detector.auto = False
    one.model(X).sum().backward()
    one.optimizer.step()
    torch.autograd.grad(one.model(X).sum(), one.model.first.weight)
    assert one.steps.kinds() == ["StepCalled", "ForwardBegins", "ForwardBegins"]
    assert not torch_optimizer._global_optimizer_pre_hooks


def test_with_calls_of_step_no_optimizer_is_hooked(bench: Any) -> None:
    """Nor is an update of the program's own looked for."""
    one = bench(auto=False)
    one.optimizer.step()
    torch.autograd.grad(one.model(X).sum(), one.model.first.weight)
    assert one.steps.kinds() == ["ForwardBegins"]


@pytest.mark.parametrize("clear", ["after", "late"])
def test_an_update_of_the_programs_own_shows_in_the_next_forward_or_fetch(bench: Any, clear: str) -> None:
    """In the parameters, or where the gradients are cleared late, from the second backward pass on."""
    one = bench()
    found = []
    for _ in range(3):
        loss = one.model(X).sum()
        found.append(one.last(events.ForwardBegins).updated)
        if found[-1]:
            one.hooks._own.begin_step()
        if clear == "late":
            one.model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in one.model.parameters():
                parameter.data -= 0.1 * parameter.grad
        if clear == "after":
            one.model.zero_grad()
    assert found == [False, True, True] if clear == "after" else [False, False, True]
    one.hooks.report_fetch(object(), explicit=False)
    assert one.last(events.Fetch).updated
    one.hooks.finish(patient=True)
    assert one.steps.updated


def test_calls_of_autograd_grad_are_updates_where_nothing_else_is(bench: Any) -> None:
    """Each one is the gradient of a step, and a step that ends begins anew."""
    one = bench()
    torch.autograd.grad(one.model(X).sum(), one.model.first.weight)
    assert one.steps.kinds() == ["ForwardBegins", "BackwardEnds"]
    one.steps.decisions = [events.EndStep()]
    one.model(X)
    assert one.last(events.ForwardBegins).updated
    one.model(X)
    assert not one.last(events.ForwardBegins).updated


def test_a_torch_optimizer_ends_the_search_for_updates_of_the_programs_own(bench: Any) -> None:
    """From its first step on, only optimizers update."""
    one = bench()
    one.optimizer.step()
    one.steps.kinds()
    torch.autograd.grad(one.model(X).sum(), one.model.first.weight)
    one.model(X).sum().backward()
    assert one.steps.kinds() == ["ForwardBegins", "ForwardBegins", "BackwardBegins"]


def test_a_gradient_that_cannot_be_looked_at_is_a_failure_of_ours(bench: Any) -> None:
    """From then on no update of the program's own is seen."""
    one = bench()

    def fail() -> None:
        raise RuntimeError("no such tensor")

    one.hooks._own.end_pass = fail
    one.model(X).sum().backward()
    assert one.recorder.failures == {"backward passes": 1}
    one.model.zero_grad()
    one.model(X)
    assert not one.last(events.ForwardBegins).updated


def test_a_module_that_is_to_be_followed_is_reported_once(bench: Any) -> None:
    """An unknown one is not."""
    one = bench()
    one.steps.decisions = [events.Follow("first"), events.Follow("first"), events.Follow("unknown")]
    one.optimizer.step()
    one.steps.kinds()
    one.model(X)
    assert one.steps.kinds() == ["ForwardBegins"] * 2


def test_modules_that_the_program_calls_are_reported_from_the_start(bench: Any) -> None:
    """Beside the model."""
    called = nn.Linear(2, 2)
    one = bench(called=(called,))
    called(X)
    assert not one.last(events.ForwardBegins).is_model
    one.hooks.remove()
    one.steps.kinds()
    called(X)
    assert one.steps.kinds() == []


def test_the_step_may_end_with_an_update_that_holds_its_training(bench: Any) -> None:
    """Hooks change then, so that this one is the last to be called."""
    one, called = bench(), list[str]()
    other = torch_optimizer.register_optimizer_step_post_hook(lambda *_: called.append("other"))

    def closure() -> Any:
        one.steps.decisions = [events.TrainsInUpdate()]
        return one.model(X).sum()

    one.optimizer.step()
    assert not one.last(events.UpdateEnds).is_last
    one.optimizer.step(closure)
    assert one.last(events.UpdateEnds).is_last
    assert len(called) == 2
    other.remove()


def test_functions_are_called_at_each_forward_that_trains_in_a_recorded_step(bench: Any) -> None:
    """And at no other."""
    calls: list[int] = []
    one = bench(training_forward_calls=[lambda: calls.append(1)])
    one.model(X)
    with torch.no_grad():
        one.model(X)
    one.steps.is_recording = False
    one.model(X)
    assert calls == [1]


def test_once_recording_is_off_no_hook_stays_but_that_after_updates(bench: Any) -> None:
    """It may be that one which runs."""
    one = bench()
    one.steps.is_off = True
    one.model(X)
    one.steps.kinds()
    one.model(X).sum().backward()
    assert one.steps.kinds() == []
    assert not torch_optimizer._global_optimizer_pre_hooks
    assert torch_optimizer._global_optimizer_post_hooks


def test_probes_report_fetches_blocks_and_modes(bench: Any) -> None:
    """As events with what they need."""
    one = bench()
    with torch.no_grad():
        one.hooks.report_fetch("source", explicit=True)
    assert one.steps.events == [events.Fetch("source", True, False)]
    one.hooks.report_ungraded(begins=True)
    one.hooks.report_ungraded(begins=False)
    one.hooks.report_mode(False)
    assert one.steps.kinds() == ["Fetch", "block begins", "block ends", "ModeChanged"]


def test_validation_without_gradients_is_excluded_from_unsampled_steps_too() -> None:
    """Between far recorded steps hooks are off; a block without gradients brings them back."""
    model = Net()
    optimizer = sgd(model)
    config = {"sinks": {}, "flops": "off", "sample": {"every": 16, "budget": None}}
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        for step in range(480):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step in (300, 352, 404):
                with torch.no_grad():
                    model(torch.ones(1, 2))
        excluded = session.summary().excluded
    assert [(one.name, one.calls) for one in excluded] == [(UNGRADED, 3)]
