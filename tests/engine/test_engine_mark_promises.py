"""Copies of a recorded model, replicas and functional calls: each computes with its own weights, unrecorded."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from hook_ways import both_ways
from mark_promises import (
    ALL,
    COPIERS,
    as_bare,
    backwards,
    batch,
    entries,
    forwards,
    frozen,
    recorded,
    train_step,
    two_layers,
)
from torch import Tensor, nn

pytestmark = both_ways


def shift(model: nn.Module) -> None:
    """Change all weights."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)


@pytest.mark.parametrize("name", COPIERS)
def test_a_copy_is_a_bare_model_with_weights_of_its_own(name: str) -> None:
    """During a session and after it; the step has the calls of the original alone; a later session records the copy."""
    model = two_layers()
    bare = COPIERS[name](model)
    described = entries(bare)
    shift(bare)
    with recorded(model) as watched:
        copied = COPIERS[name](model)
        assert entries(copied) == described
        shift(copied)
        for _ in range(2):
            assert frozen(train_step(copied)) == frozen(train_step(bare))
        assert [frozen(p.grad) for p in copied.parameters()] == [frozen(p.grad) for p in bare.parameters()]
        train_step(model)
        watched.step()
    assert forwards(watched.sink.frames[0]) == backwards(watched.sink.frames[0]) == ALL
    assert frozen(train_step(copied)) == frozen(train_step(bare))
    with recorded(copied) as later:
        train_step(copied)
        later.step()
    assert forwards(later.sink.frames[0]) == backwards(later.sink.frames[0]) == ALL


def test_a_shallow_copy_computes_with_its_own_weights() -> None:
    """``copy.copy`` shares all tables of the module; a table of its own is then used."""
    layer = nn.Linear(3, 3)
    with recorded(layer):
        copied = copy.copy(layer)
        copied._parameters = {name: nn.Parameter(torch.ones_like(p)) for name, p in layer.named_parameters()}
        assert torch.equal(copied(batch()), torch.nn.functional.linear(batch(), torch.ones(3, 3), torch.ones(3)))


class Whole(nn.Linear):
    """A layer whose state is all of its attributes, as classes with a ``__getstate__`` of their own have it."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()


WHOLE_COPIERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    name: copier for name, copier in COPIERS.items() if name != "state_dict"
}


@pytest.mark.parametrize("name", WHOLE_COPIERS)
@pytest.mark.parametrize("kind", ["all attributes", "graph module"])
def test_a_copy_by_the_way_of_its_class_computes_with_its_own_weights(kind: str, name: str) -> None:
    """A ``__getstate__`` that leaves nothing out; a module of ``torch.fx``, which copies and pickles by itself."""

    def make() -> nn.Module:
        if kind == "all attributes":
            return nn.Sequential(Whole(3, 3), Whole(3, 3))
        return torch.fx.symbolic_trace(two_layers())

    model = make()
    expected = WHOLE_COPIERS[name](model)
    shift(expected)
    with recorded(model) as watched:
        copied = WHOLE_COPIERS[name](model)
        shift(copied)
        for _ in range(2):
            assert frozen(train_step(copied)) == frozen(train_step(expected))
        train_step(model)
        watched.step()
    assert frozen(train_step(copied)) == frozen(train_step(expected))
    assert set(forwards(watched.sink.frames[0]).values()) == {1}


def test_loading_a_state_dict_changes_what_the_recorded_model_computes() -> None:
    """``load_state_dict`` during a session, also with ``assign=True``."""

    def load(model: nn.Module) -> Tensor:
        for assign in (False, True):
            model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()}, assign=assign)
        return model(batch())

    frames = as_bare(two_layers, load)
    assert [forwards(frame) for frame in frames] == [ALL, ALL]


# Replicas.


@pytest.fixture
def replicas_of_two(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module], list[Any]]:
    """Return ``nn.parallel.replicate`` for two devices that do not exist: one has these weights, one has twice them."""
    from torch.nn.parallel import replicate as replicating

    def broadcast(tensors: list[Tensor], devices: Any, detach: bool = False) -> list[list[Tensor]]:
        return [[(tensor.detach() if detach else tensor) * (i + 1) for tensor in tensors] for i in range(len(devices))]

    module = __import__("sys").modules["torch.nn.parallel.replicate"]
    monkeypatch.setattr(module, "_broadcast_coalesced_reshape", broadcast)
    monkeypatch.setattr(module, "_get_device_index", lambda device, _optional: device)
    return lambda model: replicating(model, [0, 1])


def test_replicas_compute_with_their_own_weights_on_threads(
    replicas_of_two: Callable[[nn.Module], list[Any]],
) -> None:
    """One thread a replica, as ``nn.parallel.parallel_apply`` does."""

    def work(model: nn.Module) -> list[Tensor]:
        outputs: dict[int, Tensor] = {}

        def call(index: int, replica: Any) -> None:
            outputs[index] = replica(batch())

        threads = [threading.Thread(target=call, args=pair) for pair in enumerate(replicas_of_two(model))]
        for thread in threads:
            thread.start()
            thread.join()
        sum(output.square().sum() for output in outputs.values()).backward()
        return [outputs[0], outputs[1]]

    as_bare(two_layers, work)


# Functional calls.


def doubled(model: nn.Module) -> dict[str, Tensor]:
    """Return other weights for a model."""
    return {name: p.detach() * 2 for name, p in model.named_parameters()}


def functional_loss(model: nn.Module, params: dict[str, Tensor], x: Tensor) -> Tensor:
    """Call a model with other weights."""
    return torch.func.functional_call(model, params, (x,)).square().sum()


def test_a_functional_call_uses_the_given_weights_and_is_recorded() -> None:
    """``torch.func.functional_call``, forward and backward."""

    def work(model: nn.Module) -> list[Tensor]:
        params = {name: value.requires_grad_() for name, value in doubled(model).items()}
        functional_loss(model, params, batch()).backward()
        return [value.grad for value in params.values() if value.grad is not None]

    for frame in as_bare(two_layers, work):
        assert forwards(frame) == backwards(frame) == ALL


TRANSFORMS: dict[str, Callable[[nn.Module], Any]] = {
    "vmap": lambda model: torch.func.vmap(model)(torch.stack([batch(), batch() + 1])),
    "vmap, other weights": lambda model: torch.func.vmap(
        lambda x: torch.func.functional_call(model, doubled(model), (x,))
    )(batch()),
    "grad": lambda model: torch.func.grad(lambda p: functional_loss(model, p, batch()))(doubled(model)),
    "grad of grad": lambda model: torch.func.grad(lambda x: torch.func.grad(lambda y: model(y).sum())(x).sum())(
        batch()
    ),
    "a gradient for each sample": lambda model: torch.func.vmap(
        torch.func.grad(lambda p, x: functional_loss(model, p, x)), (None, 0)
    )(doubled(model), batch()),
    "vjp": lambda model: torch.func.vjp(model, batch())[1](torch.ones(2, 3)),
    "jvp": lambda model: torch.func.jvp(model, (batch(),), (torch.ones(2, 3),)),
    "jacrev": lambda model: torch.func.jacrev(model)(batch()),
    "functionalize": lambda model: torch.func.functionalize(model)(batch()),
    "forward-mode differentiation": lambda model: forward_mode(model),
}


def forward_mode(model: nn.Module) -> list[Tensor]:
    """Return output and tangent of dual numbers."""
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        primal, tangent = forward_ad.unpack_dual(model(forward_ad.make_dual(batch(), torch.ones(2, 3))))
        assert tangent is not None
        return [primal.clone(), tangent.clone()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_functional_transform_gives_the_same_bits(name: str) -> None:
    """And no call is recorded that the bare model does not make; a plain step after it is recorded as always."""
    calls = 0

    def work(model: nn.Module) -> Any:
        nonlocal calls
        handle = model[2].register_forward_pre_hook(count_call)  # type: ignore[index]
        calls = 0
        made = TRANSFORMS[name](model)
        handle.remove()
        return made, train_step(model)

    def count_call(*_args: Any) -> None:
        nonlocal calls
        calls += 1

    for frame in as_bare(two_layers, work):
        assert 1 <= forwards(frame)["2"] <= calls + 1
        assert backwards(frame)["2"] >= 1
