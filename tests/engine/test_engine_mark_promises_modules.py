"""Modules that change during a session, and modules of unusual classes, are recorded and left as they are."""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from mark_promises import (
    ALL,
    as_bare,
    backwards,
    batch,
    check_closed,
    counting_steps,
    entries,
    forwards,
    functions,
    train_step,
    two_layers,
)
from torch import Tensor, nn

# Functions that are replaced.


def twice(self: Any, x: Tensor) -> Tensor:
    """Be a forward."""
    return torch.nn.functional.linear(x, self.weight) * 2


OWN_CALL = nn.Module.__call__
SEEN: list[str] = []


def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Be a ``__call__`` of all modules, as tools that trace modules put it on the class."""
    SEEN.append(type(self).__name__)
    return OWN_CALL(self, *args, **kwargs)


@pytest.mark.parametrize("place", ["instance", "class", "__call__ of all modules"])
def test_a_function_of_a_module_that_is_replaced_is_called_and_recorded(place: str) -> None:
    """In the second step; put back after it."""

    def work(model: Any, step: int) -> Any:
        SEEN.clear()
        with pytest.MonkeyPatch.context() as patch:
            if step == 2 and place == "instance":
                patch.setitem(vars(model[0]), "forward", types.MethodType(twice, model[0]))
            elif step == 2 and place == "class":
                patch.setattr(nn.Linear, "forward", twice)
            elif step == 2:
                patch.setattr(nn.Module, "__call__", call)
            return train_step(model), list(SEEN)

    for frame in as_bare(two_layers, counting_steps(work), steps=3):
        assert forwards(frame) == backwards(frame) == ALL


def test_what_programs_ask_of_a_model_is_answered_as_without_a_session() -> None:
    """Signature of its forward, names, children, parameters, buffers, text and size."""

    def work(model: Any) -> Any:
        return (
            str(inspect.signature(model.forward)),
            model.forward.__func__ is type(model).forward,
            dir(model) == sorted({*dir(type(model)), *vars(model), *model._modules}),
            [name for name, _ in model.named_modules()],
            [name for name, _ in model.named_parameters()],
            sum(p.numel() for p in model.parameters()),
            repr(model),
            "forward" in vars(model[0]),
        )

    as_bare(two_layers, work)


# Modules that come and go.


def test_a_module_that_left_the_model_has_nothing_of_the_session_after_it() -> None:
    """Though the tree no longer leads to it; it can be called during the session and after it."""
    model, before = two_layers(), functions()
    own = entries(model)
    with Watched(model, config=everything()) as watched:
        removed = model[0]
        model[0] = nn.Linear(3, 3)
        removed(batch()).sum().backward()
        train_step(model)
        watched.step()
    check_closed(watched, before)
    model[0] = removed
    assert entries(model) == own
