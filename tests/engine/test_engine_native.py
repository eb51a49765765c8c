"""Hooks in C: they leak nothing, let a Ctrl-C through, count failures, and leave nothing usual to Python."""

import gc
import sys
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from torch import nn


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


class Raising(torch.Tensor):
    """A tensor with an attribute that raises once, as a signal handler of the user's may at any time."""

    attribute = ""
    error: BaseException | None = None

    def __getattribute__(self, name: str) -> Any:
        if name == Raising.attribute and Raising.error is not None:
            error, Raising.error = Raising.error, None
            raise error
        return super().__getattribute__(name)


def raises_once(attribute: str, error: BaseException) -> torch.Tensor:
    """Return a tensor whose attribute raises this error when it is read for the first time."""
    Raising.attribute, Raising.error = attribute, error
    return torch.ones(1, 2).as_subclass(Raising)


class Returns(nn.Module):
    """Return a tensor that was prepared."""

    prepared: torch.Tensor | None = None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the prepared tensor, or the input."""
        return value if self.prepared is None else self.prepared


@pytest.mark.parametrize("attribute", ["shape", "dtype", "grad_fn"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ValueError("no such attribute here")], ids=["Ctrl-C", "another"]
)
def test_of_the_errors_in_an_attribute_of_an_input_only_a_ctrl_c_reaches_the_program(
    error: BaseException, attribute: str
) -> None:
    """Only the hook in C reads the attribute: another error than an interrupt is counted."""
    model = nn.Sequential(Returns())
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(3):
            model(torch.ones(1, 2))
            watched.step()
        with pytest.raises(KeyboardInterrupt) if isinstance(error, KeyboardInterrupt) else nullcontext():
            model(raises_once(attribute, error))
        model(torch.ones(1, 2))
    failures = {"failures in module hooks": 1} if isinstance(error, ValueError) else {}
    assert {key: n for key, n in watched.session.summary().skipped.items() if "failures" in key} == failures
