"""Inputs are described without keeping them, and counted anew only when their shapes are new."""

import gc
import weakref
from collections import OrderedDict, namedtuple

import pytest
import torch
from flops_models import counted, refused
from torch import nn

from autoprof.probes.metrics.flops import Opaque, TensorSpec, describe

Pair = namedtuple("Pair", "left right")


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
    inputs = describe(nn.Linear(1, 1), (tensor,), {"also": [tensor]})
    assert inputs.leaves[:1] == (TensorSpec((2, 3), torch.float32, torch.device("cpu"), True),)
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
        ([None, slice(0, 2), torch.randn(3, 4)], lambda value: value[2][value[1]]),
    ],
)
def test_inputs_in_containers_are_made_anew(value, take):
    """Mappings, named tuples, nested; values that are no tensors are unchanged."""
    assert counted(Takes(take), value, step=5).flops() == 2 * 2 * 2 * 16


def test_an_argument_without_known_shapes_gives_no_figure():
    """An object of the user's own, a tensor of another layout."""

    class Graph:
        x = torch.randn(2, 4)

    assert "Graph, with unknown shapes" in refused(Takes(lambda graph: graph.x), Graph())
    assert describe(nn.Linear(1, 1), (torch.eye(2).to_sparse(),)).leaves == (
        Opaque("a tensor of layout torch.sparse_coo"),
    )
