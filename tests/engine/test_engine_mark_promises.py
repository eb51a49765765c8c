"""Copies of a recorded model, replicas and functional calls: each computes with its own weights, unrecorded."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from mark_promises import ALL, COPIERS, as_bare, backwards, batch, forwards, frozen, recorded, train_step, two_layers
from torch import Tensor, nn

copied_by = pytest.mark.parametrize("name", COPIERS)


def shift(model: nn.Module) -> None:
    """Change all weights."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)


@copied_by
def test_a_copy_computes_with_its_own_weights(name: str) -> None:
    """Forward and backward, after its weights were changed."""
    model = two_layers()
    expected = COPIERS[name](model)
    shift(expected)
    with recorded(model):
        copied = COPIERS[name](model)
        shift(copied)
        assert frozen(train_step(copied)) == frozen(train_step(expected))
        assert [frozen(p.grad) for p in copied.parameters()] == [frozen(p.grad) for p in expected.parameters()]
        assert all(p.grad is None for p in model.parameters())


@copied_by
def test_a_copy_is_not_recorded(name: str) -> None:
    """The step has the calls of the model itself, no more."""
    model = two_layers()
    with recorded(model) as watched:
        copied = COPIERS[name](model)
        for _ in range(2):
            train_step(copied)
        train_step(model)
        watched.step()
        (frame,) = watched.frames
    assert forwards(frame) == backwards(frame) == ALL


@copied_by
def test_a_copy_works_after_the_session_is_closed(name: str) -> None:
    """With its own weights."""
    model = two_layers()
    expected = COPIERS[name](model)
    with recorded(model):
        copied = COPIERS[name](model)
    shift(expected)
    shift(copied)
    for _ in range(2):
        assert frozen(train_step(copied)) == frozen(train_step(expected))


@copied_by
def test_a_copy_can_be_recorded_by_a_later_session(name: str) -> None:
    """As any other model."""
    model = two_layers()
    with recorded(model):
        copied = COPIERS[name](model)
    train_step(copied)
    with recorded(copied) as watched:
        train_step(copied)
        watched.step()
        (frame,) = watched.frames
    assert forwards(frame) == backwards(frame) == ALL


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


def test_a_module_made_of_anothers_attributes_computes_with_its_own_weights() -> None:
    """``__dict__`` copied to a new object, whose tables are then its own."""
    layer = nn.Linear(3, 3)

    def made() -> nn.Linear:
        other = nn.Linear.__new__(nn.Linear)
        other.__dict__ = layer.__dict__.copy()
        other._parameters = {name: nn.Parameter(torch.full_like(p, 2)) for name, p in layer.named_parameters()}
        return other

    expected = torch.nn.functional.linear(batch(), torch.full((3, 3), 2.0), torch.full((3,), 2.0))
    with recorded(layer):
        other = made()
        for _ in range(2):
            assert torch.equal(other(batch()), expected)
    assert torch.equal(other(batch()), expected)


def test_saving_during_a_session_writes_the_bytes_of_the_bare_model() -> None:
    """``pickle`` of the state dict."""
    model = two_layers()
    bare = pickle.dumps(model.state_dict())
    with recorded(model):
        assert pickle.dumps(model.state_dict()) == bare


def test_loading_a_state_dict_changes_what_the_recorded_model_computes() -> None:
    """``load_state_dict`` during a session, also with ``assign=True``."""

    def load(model: nn.Module) -> Tensor:
        for assign in (False, True):
            model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()}, assign=assign)
        return model(batch())

    frames = as_bare(two_layers, load)
    assert [forwards(frame) for frame in frames] == [ALL, ALL]


# Replicas.


def test_a_replica_of_a_module_computes_with_its_own_weights() -> None:
    """As ``DataParallel`` makes it."""
    layer = nn.Linear(3, 3)
    with recorded(layer):
        replica: Any = layer._replicate_for_data_parallel()
        replica.weight, replica.bias = torch.full((3, 3), 2.0), torch.full((3,), 3.0)
        expected = torch.nn.functional.linear(batch(), replica.weight, replica.bias)
        for _ in range(2):
            assert torch.equal(replica(batch()), expected)


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


def test_replicas_compute_with_their_own_weights(replicas_of_two: Callable[[nn.Module], list[Any]]) -> None:
    """``nn.parallel.replicate``; the gradients arrive at the original."""

    def work(model: nn.Module) -> list[Tensor]:
        outputs = [replica(batch()) for replica in replicas_of_two(model)]
        sum(output.square().sum() for output in outputs).backward()
        return outputs

    as_bare(two_layers, work)
    first, second = work(two_layers())
    assert not torch.equal(first, second)


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


def test_replicas_work_after_the_session_is_closed(replicas_of_two: Callable[[nn.Module], list[Any]]) -> None:
    """They were made during it."""
    model = two_layers()
    expected = [frozen(replica(batch())) for replica in replicas_of_two(model)]
    with recorded(model):
        replicas = replicas_of_two(model)
    assert [frozen(replica(batch())) for replica in replicas] == expected


def test_data_parallel_without_devices_is_recorded_as_the_model_inside() -> None:
    """There it calls the module itself."""
    frames = as_bare(lambda: nn.DataParallel(two_layers()), train_step)
    for frame in frames:
        assert {name: calls for name, calls in forwards(frame).items() if name in "012"} == {"0": 1, "1": 1, "2": 1}


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
    "grad of the input": lambda model: torch.func.grad(lambda x: model(x).sum())(batch()),
    "grad_and_value": lambda model: torch.func.grad_and_value(lambda p: functional_loss(model, p, batch()))(
        doubled(model)
    ),
    "grad of grad": lambda model: torch.func.grad(lambda x: torch.func.grad(lambda y: model(y).sum())(x).sum())(
        batch()
    ),
    "a gradient for each sample": lambda model: torch.func.vmap(
        torch.func.grad(lambda p, x: functional_loss(model, p, x)), (None, 0)
    )(doubled(model), batch()),
    "vjp": lambda model: torch.func.vjp(model, batch())[1](torch.ones(2, 3)),
    "jvp": lambda model: torch.func.jvp(model, (batch(),), (torch.ones(2, 3),)),
    "jacrev": lambda model: torch.func.jacrev(model)(batch()),
    "jacfwd": lambda model: torch.func.jacfwd(model)(batch()),
    "linearize": lambda model: torch.func.linearize(model, batch())[1](torch.ones(2, 3)),
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


def test_an_ensemble_of_stacked_copies_computes_with_their_own_weights() -> None:
    """``torch.func.stack_module_state`` of recorded models, called by ``vmap`` through one of them."""

    def work(model: nn.Module) -> Tensor:
        first, second = model[0], model[2]  # type: ignore[index]
        params, buffers = torch.func.stack_module_state([first, second])

        def call(params: Any, buffers: Any, x: Tensor) -> Tensor:
            return torch.func.functional_call(first, (params, buffers), (x,))

        return torch.func.vmap(call, (0, 0, None))(params, buffers, batch())

    as_bare(two_layers, work)
