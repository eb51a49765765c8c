"""Modules that change during a session, and modules of unusual classes, are recorded and left as they are."""

from __future__ import annotations

import inspect
import types
from typing import Any

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

# Forward replaced.


def test_a_forward_replaced_on_the_instance_is_called_and_recorded() -> None:
    """From the second step on; deleted again in the third."""

    def twice(self: Any, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight) * 2

    def work(model: Any, step: int) -> Any:
        if step == 2:
            model[0].forward = types.MethodType(twice, model[0])
        if step == 3:
            del model[0].forward
        return train_step(model)

    for frame in as_bare(two_layers, counting_steps(work), steps=4):
        assert forwards(frame) == backwards(frame) == ALL


def test_a_forward_patched_on_the_class_is_called_and_recorded() -> None:
    """During the session, and put back."""
    own = nn.Linear.forward

    def work(model: Any, step: int) -> Any:
        if step == 2:
            nn.Linear.forward = lambda self, input: own(self, input) * 2
        try:
            return train_step(model)
        finally:
            nn.Linear.forward = own

    for frame in as_bare(two_layers, counting_steps(work), steps=3):
        assert forwards(frame) == backwards(frame) == ALL


def test_a_call_patched_on_the_class_of_all_modules_is_called() -> None:
    """``nn.Module.__call__``, as tools that trace modules do."""
    own = nn.Module.__call__
    seen: list[str] = []

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        seen.append(type(self).__name__)
        return own(self, *args, **kwargs)

    def work(model: Any, step: int) -> Any:
        seen.clear()
        if step == 2:
            nn.Module.__call__ = call
        try:
            return train_step(model), list(seen)
        finally:
            nn.Module.__call__ = own

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
