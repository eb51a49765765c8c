"""Hooks in C: they leak nothing, let a Ctrl-C through, count failures, and leave nothing usual to Python."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from torch import nn

from autoprof._capture.hooks.module_hooks import CallHooks
from autoprof.testing import FakeClock


@pytest.mark.parametrize("phases", [["forward"], ["forward", "backward"]])
def test_hooks_in_c_leak_no_memory(phases: list[str]) -> None:
    """As many blocks of memory after a thousand further steps as before them."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Identity()), nn.ReLU())
    config = everything(flops="off", sinks={}, targets=[{"match": ".+", "name": "all", "phases": phases}])
    watched = Watched(model, config=config)
    watched.sink.write = lambda frame: None

    def steps(count: int) -> int:
        for _ in range(count):
            model(torch.ones(1, 2)).sum().backward()
            watched.step()
        watched.session.summary()
        gc.collect()
        return sys.getallocatedblocks()

    with watched:
        steps(2000)  # what keeps the last steps is full
        before = steps(100)
        assert abs(steps(1000) - before) < 200


def test_a_ctrl_c_during_a_reading_reaches_the_program() -> None:
    """It is not counted as a failure of ours."""

    class Interrupted(FakeClock):
        strikes = False

        def read(self) -> Any:
            if self.strikes:
                self.strikes = False
                raise KeyboardInterrupt
            return super().read()

    clock, model = Interrupted(tick_ns=1), nn.Sequential(nn.Linear(2, 2))
    with Watched(model, clock=clock, config=everything(flops="off", step="manual")) as watched:
        clock.strikes = True
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(1, 2))
        assert not watched.recorder.failures


class Raising(torch.Tensor):
    """A tensor with an attribute that raises once, as a signal handler of the user's may at any time."""

    attribute = ""
    error: BaseException | None = None

    def __getattribute__(self, name: str) -> Any:
        if name == Raising.attribute and Raising.error is not None:
            error, Raising.error = Raising.error, None
            raise error
        return super().__getattribute__(name)


def raises_once(monkeypatch: pytest.MonkeyPatch, attribute: str, error: BaseException) -> torch.Tensor:
    """Return a tensor whose attribute raises this error when it is read for the first time."""
    monkeypatch.setattr(Raising, "attribute", attribute)
    monkeypatch.setattr(Raising, "error", error)
    return torch.ones(1, 2).as_subclass(Raising)


class Returns(nn.Module):
    """Return a tensor that was prepared."""

    prepared: torch.Tensor | None = None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the prepared tensor, or the input."""
        return value if self.prepared is None else self.prepared


@pytest.mark.parametrize("attribute", ["shape", "dtype", "grad_fn"])
def test_a_ctrl_c_in_an_attribute_of_an_input_reaches_the_program(
    attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It vanished where the hook in C compared a call of the model with the one before."""
    model = nn.Sequential(Returns())
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(3):
            model(torch.ones(1, 2))
            watched.step()
        value = raises_once(monkeypatch, attribute, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            model(value)
        assert not watched.recorder.failures
        model(torch.ones(1, 2))


@pytest.mark.parametrize("attribute", ["shape", "dtype", "grad_fn"])
def test_another_error_in_an_attribute_of_an_input_is_counted_and_never_reaches_the_program(
    attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the hook reads the attribute, so the program does not expect the error."""
    model = nn.Sequential(Returns())
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(3):
            model(torch.ones(1, 2))
            watched.step()
        model(raises_once(monkeypatch, attribute, ValueError("no such attribute here")))
        assert watched.recorder.failures == {"module hooks": 1}


def test_the_usual_call_runs_no_hook_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outermost call has a gap inside, for Python."""
    python_calls: list[str] = []

    def without_fallback(_before: Any, _after: Any, context: Any) -> CallHooks:
        def fallback(_owner: Any, module: nn.Module, *_args: Any) -> None:
            python_calls.append(type(module).__name__)

        return CallHooks(fallback, fallback, context)

    monkeypatch.setattr("autoprof._capture.hooks.module_hooks.CallHooks", without_fallback)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with Watched(model, config=everything(step="manual", flops="off")) as watched:
        for _ in range(4):
            model(torch.ones(1, 2)).sum().backward()
            watched.step()
    assert set(python_calls) <= {"Sequential"}
    assert len(python_calls) <= 4
