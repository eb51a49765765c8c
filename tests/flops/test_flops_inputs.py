"""Inputs are described without keeping them, and counted anew only when their shapes are new."""

import gc
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from flops_models import call_of, counted, refused
from torch import nn

from autoprof._metrics.flops import Ambient, FlopCounter, Opaque, TensorSpec, ambient, describe
from autoprof._metrics.flops import count as counter_module
from autoprof._metrics.flops.call_inputs import ITEMS

Pair = namedtuple("Pair", "left right")


@dataclass
class Batch:
    """A batch as many loaders give it."""

    x: torch.Tensor
    scale: float


class Takes(nn.Module):
    """A layer whose input has to be taken out of something."""

    def __init__(self, take):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.take = take

    def forward(self, value, **kwargs):
        return self.layer(self.take(value))


def test_a_description_keeps_no_tensor_alive():
    """Shape, type, device and whether a gradient is wanted; nothing else."""
    tensor = torch.randn(2, 3, requires_grad=True)
    inputs = describe((tensor,), {"also": [tensor]})
    assert inputs.args == (TensorSpec((2, 3), torch.float32, torch.device("cpu"), True),)
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("value", "take"),
    [
        ({"a": [torch.randn(2, 4)]}, lambda value: value["a"][0]),
        (OrderedDict(a=(1, torch.randn(2, 4))), lambda value: value["a"][1]),
        (Pair(torch.randn(2, 4), 3), lambda value: value.left),
        (Batch(torch.randn(2, 4), 2.0), lambda value: value.x * value.scale),
        ([None, slice(0, 2), torch.randn(3, 4)], lambda value: value[2][value[1]]),
    ],
)
def test_inputs_in_containers_are_made_anew(value, take):
    """Mappings, named tuples, dataclasses, nested; values that are no tensors are unchanged."""
    assert counted(Takes(take), value, step=5).flops() == 2 * 2 * 2 * 16


def test_an_argument_without_known_shapes_gives_no_figure():
    """An object of the user's own, a tensor of another layout."""

    class Graph:
        x = torch.randn(2, 4)

    assert "Graph, with unknown shapes" in refused(Takes(lambda graph: graph.x), Graph())
    assert describe((torch.eye(2).to_sparse(),)).args == (Opaque("a tensor of layout torch.sparse_coo"),)


def test_a_description_is_bounded():
    """A list of a million numbers is data."""
    assert Opaque(f"more than {ITEMS} values") in describe((list(range(10 * ITEMS)),)).args[0].items


def test_the_key_is_made_of_shapes_and_switches_not_of_numbers():
    """A step's number or a loss weight does not make work; a shape, a type, a switch or a text may."""
    x = torch.randn(2, 4)
    key = describe((x, 1, True, "a", {"k": 0.5})).key()
    assert key == describe((x + 1, 2, True, "a", {"k": 0.7})).key()
    assert hash(key) == hash(describe((x, 1, True, "a", {"k": 0.5})).key())
    for other in [(x[:1], 1, True, "a", {"k": 0.5}), (x.double(), 1, True, "a", {"k": 0.5}),
                  (x, 1, False, "a", {"k": 0.5}), (x, 1, True, "b", {"k": 0.5}), (x, 1, True, "a", {"j": 0.5}),
                  (x, 1.0, True, "a", {"k": 0.5})]:  # fmt: skip
        assert describe(other).key() != key


def test_slices_have_keys():
    """They are hashable only in new versions of Python."""
    hash(describe((slice(0, 2),)).key())


def test_what_is_in_force_at_a_call_is_read():
    """Gradients, training, autocast by device."""
    model = nn.Linear(1, 1).eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert ambient(model) == Ambient(False, False, (("cpu", torch.bfloat16),))
    assert ambient(model.train()) == Ambient()


@pytest.fixture
def counts(monkeypatch):
    """Note the calls that are really counted."""
    made = []
    count_call = counter_module.count_call

    def noted(model, call, **more):
        made.append(call)
        return count_call(model, call, **more)

    monkeypatch.setattr(counter_module, "count_call", noted)
    return made


def test_the_same_shapes_are_counted_once(counts):
    """Once for all steps, and once more when they change."""
    model = nn.Linear(4, 4)
    counter = FlopCounter(model)
    for _ in range(3):
        assert counter.count([(call_of(model, torch.randn(2, 4)), 1)]).flops() == 128
    assert counter.count([(call_of(model, torch.randn(3, 4)), 2)]).flops() == 2 * 192
    assert len(counts) == 2
    assert counter.spent_ns > 0


def test_a_step_is_the_sum_of_its_calls_and_is_counted_once(counts):
    """A second step with the same calls runs nothing."""
    model = nn.Linear(4, 4)
    counter = FlopCounter(model)
    step = [(call_of(model, torch.randn(2, 4)), 2)]
    assert counter.count(step).flops() == 256
    assert counter.count(step).flops() == 256
    assert len(counts) == 1


def test_freezing_a_layer_makes_other_work(counts):
    """The shapes are the same, the backward is not."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    counter = FlopCounter(model)
    step = [(call_of(model, torch.randn(1, 4)), 1)]
    before = counter.count(step).flops()
    model[0].requires_grad_(False)
    assert counter.count(step).flops() < before
    assert len(counts) == 2


def test_shapes_that_never_repeat_are_given_up(counts):
    """Counting each of them would take too long; the reason names the limit."""
    model = nn.Linear(4, 4)
    counter = FlopCounter(model, limit=3)
    found = [counter.count([(call_of(model, torch.randn(rows, 4)), 1)]) for rows in range(1, 6)]
    assert [count.reason is None for count in found] == [True, True, True, False, False]
    assert found[-1].reason == "the shapes of the inputs changed more than 3 times"
    assert len(counts) == 3


def test_what_could_not_be_counted_is_not_tried_again(counts):
    """A model that fails fails once."""
    model = Takes(lambda x: x[x > 0])
    counter = FlopCounter(model)
    for _ in range(3):
        assert counter.count([(call_of(model, torch.randn(2, 4)), 1)]).reason is not None
    assert len(counts) == 1
