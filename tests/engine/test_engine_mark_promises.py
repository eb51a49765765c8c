"""Copies and replicas of a recorded model: each computes with its own weights, unrecorded."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from bits import describe
from mark_promises import (
    ALL,
    COPIERS,
    as_bare,
    backwards,
    batch,
    entries,
    forwards,
    recorded,
    train_step,
    two_layers,
)
from torch import Tensor, nn


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
            assert describe(train_step(copied)) == describe(train_step(bare))
        assert [describe(p.grad) for p in copied.parameters()] == [describe(p.grad) for p in bare.parameters()]
        train_step(model)
        watched.step()
    assert forwards(watched.sink.frames[0]) == backwards(watched.sink.frames[0]) == ALL
    assert describe(train_step(copied)) == describe(train_step(bare))
    with recorded(copied) as later:
        train_step(copied)
        later.step()
    assert forwards(later.sink.frames[0]) == backwards(later.sink.frames[0]) == ALL


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
            assert describe(train_step(copied)) == describe(train_step(expected))
        train_step(model)
        watched.step()
    assert describe(train_step(copied)) == describe(train_step(expected))
    assert set(forwards(watched.sink.frames[0]).values()) == {1}


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
