"""A class around an optimizer is the optimizer: its whole step is timed, and nothing of it stays replaced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, count
from torch import nn

import autoprof
from autoprof import Phase
from autoprof.base.process import replace
from autoprof.errors import SessionError


@pytest.fixture(autouse=True)
def nothing_stays_wrapped(nothing_compiled: None) -> Any:
    """Every function is its own again after each test."""
    step = Around.step
    yield
    assert Around.step is step
    assert not replace.held


class Around:
    """An optimizer around torch's, as people write it themselves."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def zero_grad(self) -> None:
        """Clear the gradients."""
        self.inner.zero_grad()

    def step(self, closure: Any = None) -> None:
        """Call the closure, if there is one, and update."""
        if closure is not None:
            closure()
        self.inner.step()


class Trainer:
    """It holds an optimizer, and its step trains."""

    def __init__(self, model: nn.Module, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer

    def step(self) -> None:
        """Train once."""
        self.model(torch.ones(2, 2)).sum().backward()
        self.optimizer.step()


def test_the_step_of_a_class_around_an_optimizer_is_one_span_from_its_second_call_on() -> None:
    """In the first one only the inner step is known."""
    model = nn.Linear(2, 1)
    optimizer = Around(Around(torch.optim.SGD(model.parameters(), lr=0.1)))
    with Watched(model, optimizer=optimizer.inner.inner) as watched:
        for _ in range(2):
            model(torch.ones(2, 2)).sum().backward()
            optimizer.step()
            watched.step()
    names = [[span.parent for span in frame.spans if span.name == "Optimizer"] for frame in watched.frames]
    assert [len(parents) for parents in names] == [1, 3]
    for frame in watched.frames:
        check_laws(frame)


def test_the_time_of_its_closure_belongs_to_the_training() -> None:
    """Forward and backward in the closure are no part of the optimizer."""
    model = nn.Linear(2, 1)
    optimizer = Around(torch.optim.SGD(model.parameters(), lr=0.1))
    with Watched(model, optimizer=optimizer.inner) as watched:
        optimizer.step()
        watched.step()
        optimizer.step(lambda: model(torch.ones(2, 2)).sum().backward())
        watched.step()
    (forward,) = [span for span in watched.frames[1].spans if span.phase is Phase.FORWARD]
    assert forward.parent is None


def test_an_object_that_trains_in_its_step_is_no_optimizer() -> None:
    """It lacks ``zero_grad``."""
    model = nn.Linear(2, 1)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with Watched(model, optimizer=trainer.optimizer) as watched:
        for _ in range(2):
            trainer.step()
            watched.step()
    assert count(watched.frames[1], Phase.OPTIMIZER) == {"Optimizer": 1}


def test_a_class_around_an_optimizer_may_be_given() -> None:
    """Under whichever attribute it holds it; without one it is refused."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    autoprof.instrument(model, optimizer=Around(optimizer)).close()
    with pytest.raises(SessionError, match="a wrapper that holds it"):
        autoprof.instrument(model, optimizer=Around(None))
