"""Calls of every shape are recorded as they happen, and a mark is no hook: programs find the bare model."""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest
import torch
from attached import hooks_of
from engine_laws import Watched, everything, tree
from mark_promises import (
    ALL,
    as_bare,
    backwards,
    batch,
    check_closed,
    count_fused_calls,
    counting_steps,
    entries,
    forwards,
    functions,
    recorded,
    train_step,
    two_layers,
)
from torch import Tensor, nn

from autoprof import Phase

# Arguments and outputs.


def test_a_wrong_call_raises_the_error_of_the_bare_model() -> None:
    """Missing, unknown and too many arguments: the same message."""

    def work(model: Any) -> list[str]:
        messages = []
        for args, kwargs in (((), {}), ((batch(),), {"unknown": 1}), ((batch(), 1, 2), {}), ((None,), {})):
            with pytest.raises((TypeError, AttributeError)) as error:
                model[0](*args, **kwargs)
            messages.append(str(error.value))
        train_step(model)
        return messages

    for frame in as_bare(two_layers, work):
        assert {name: forwards(frame)[name] for name in ("Sequential", "1", "2")} == {"Sequential": 1, "1": 1, "2": 1}
        assert backwards(frame) == ALL


# Exceptions.


class Failure(Exception):
    """Raised by the model."""


class Fails(nn.Module):
    """A module that raises when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.error: BaseException | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        if self.error is not None:
            raise self.error
        return x


ERRORS = [
    Failure("of the model"), StopIteration(4), MemoryError(), KeyError("key"),
    KeyboardInterrupt(), SystemExit(3), GeneratorExit(),  # torch's own hooks are passed over by these
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
def test_an_exception_leaves_forward_as_it_is(error: BaseException) -> None:
    """The very object without cause and context; spans are closed, and the next call is recorded as always."""

    def work(model: Any) -> Tensor:
        model[1].error = error
        caught: BaseException | None = None
        try:
            model(batch())
        except BaseException as raised:
            caught = raised
        assert caught is error
        assert error.__cause__ is None
        assert error.__context__ is None
        model[1].error = None
        return train_step(model)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 3), Fails(), nn.Linear(3, 3))

    for frame in as_bare(make, work):
        assert forwards(frame) == {"Sequential": 2, "0": 2, "1": 2, "1/layer": 2, "2": 1}
        assert backwards(frame) == {"Sequential": 1, "0": 1, "1": 1, "1/layer": 1, "2": 1}
        depths = {line.strip(): len(line) - len(line.lstrip()) for line in tree(frame, Phase.FORWARD)}
        assert depths == {
            "Sequential forward": 0, "0 forward": 2, "1 forward": 2, "1/layer forward": 4, "2 forward": 2,
        }  # fmt: skip


# Sessions that come and go.


def test_a_graph_made_during_the_session_runs_after_it() -> None:
    """Twice, with the gradients of the bare model."""
    model = two_layers()
    train_step(model)
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    with recorded(model):
        output = model(batch())
    output.square().sum().backward(retain_graph=True)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))
    output.square().sum().backward()


def test_a_session_closed_inside_a_call_lets_the_call_end() -> None:
    """A hook of the program closes it; the outer calls return as always."""
    model = two_layers()
    expected = model(batch())
    with recorded(model) as watched:
        model[1].closing = watched.session.close
        handle = model[1].register_forward_hook(lambda *_: watched.session.close())
        assert torch.equal(model(batch()), expected)
        handle.remove()
        del model[1].closing
        assert torch.equal(model(batch()), expected)


# Hooks that programs look at, copy and clear.


def test_a_recorded_model_has_no_hooks() -> None:
    """On no module, of no kind: what asks for hooks before it takes a faster way takes it."""
    model = two_layers()
    with recorded(model) as watched:
        for _ in range(2):
            found = [hooks_of(module) for module in model.modules()]
            assert not any(hooks for one in found for kind, hooks in one.items() if kind != "marks")
            train_step(model)
            watched.step()
    for frame in watched.sink.frames:
        assert forwards(frame) == backwards(frame) == ALL


def test_hooks_that_the_program_clears_leave_the_modules_recorded() -> None:
    """``_forward_hooks.clear()`` and its kin, on every module; nothing is left of them after the session."""

    def work(model: nn.Module) -> Any:
        for module in model.modules():
            module.register_forward_hook(lambda *_: 1 / 0)
            module.register_forward_pre_hook(lambda *_: 1 / 0)
            module._forward_hooks.clear()
            module._forward_pre_hooks.clear()
        return train_step(model)

    for frame in as_bare(two_layers, work):
        assert forwards(frame) == backwards(frame) == ALL


class Trained(nn.Module):
    """A frozen encoder in eval mode, without gradients, under a head that trains."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.trunk = nn.TransformerEncoder(layer, 2).requires_grad_(False)
        self.head = nn.Linear(8, 2)

    def train(self, mode: bool = True) -> Trained:
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.trunk(x)
        return self.head(hidden)


@pytest.mark.filterwarnings("ignore:.*nested tensors")
def test_the_fused_way_of_a_transformer_encoder_stays_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rules on all modules inside it; the encoder is recorded with the layers that it calls."""
    fused_calls = count_fused_calls(monkeypatch)

    def work(model: nn.Module) -> Any:
        fused_calls.clear()
        output = model(torch.linspace(-1, 1, 48).reshape(2, 3, 8))
        output.square().sum().backward()
        return output, list(fused_calls)

    for frame in as_bare(lambda: Trained().train(), work, steps=3):
        assert fused_calls == ["_transformer_encoder_layer_fwd"] * 2
        assert forwards(frame) == {"Trained": 1, "trunk": 1, "trunk/layers/0": 1, "trunk/layers/1": 1, "head": 1}
        assert backwards(frame) == {"Trained": 1, "head": 1}


# Modes of the program.


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
