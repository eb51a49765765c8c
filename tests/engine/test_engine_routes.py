"""The way to the node that runs next: sought once, followed from then on, sought anew where it leads elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autoprof._capture.probes.graph_search import NODES, Routes


def number() -> int:
    """The number of the next node."""
    return torch.autograd._get_sequence_nr()


class Counted(Routes):
    """Counts how often a way was sought."""

    @property
    def sought(self) -> int:
        """Since the start."""
        return self._sought


def beside(x: Tensor, longer: bool = False) -> tuple[Tensor, int, Tensor]:
    """Make a node, then what stands for a module's, and their sum; return it, where the module began, the node."""
    first = x.exp()
    made = number()
    module = x.sin().cos() if longer else x.sin()
    return first + module, made, first


@pytest.fixture
def x() -> Tensor:
    """A tensor with a node of its own."""
    return torch.ones(2, requires_grad=True) * 1.0


def test_the_newest_node_before_the_call_is_found_and_the_way_remembered(x: Tensor) -> None:
    """At the second time nothing is sought."""
    routes = Counted()
    for _ in range(3):
        output, made, first = beside(x)
        assert routes.follow(output.grad_fn, 0, made, ()) is first.grad_fn
    assert routes.sought == 1


def test_a_way_that_leads_elsewhere_is_sought_anew(x: Tensor) -> None:
    """A module that does something else now and then is right each time."""
    routes = Counted()
    for longer in (False, True, False, True):
        output, made, first = beside(x, longer)
        assert routes.follow(output.grad_fn, 0, made, ()) is first.grad_fn
    assert routes.sought == 2
    first = x.exp()
    made = number()
    output = x.sin() + first  # as far from the output as before, but by the other edge
    assert routes.follow(output.grad_fn, 0, made, ()) is first.grad_fn
    assert routes.sought == 3


def test_a_node_that_marks_already_needs_no_mark(x: Tensor) -> None:
    """And is not sought again."""
    routes = Counted()
    for _ in range(2):
        output, made, first = beside(x)
        assert routes.follow(output.grad_fn, 0, made, {first.grad_fn._sequence_nr()}) is None
    assert routes.sought == 1


def test_views_alone_are_not_worth_a_mark(x: Tensor) -> None:
    """Their backward is a view; as soon as something else is among them, it is worth one."""
    marked = {x.grad_fn._sequence_nr()}
    views = x.view(2, 1).transpose(0, 1)
    made = number()
    assert Routes().follow((views + x.sin()).grad_fn, 0, made, marked) is None
    views = x.exp().view(2, 1).transpose(0, 1)
    made = number()
    assert Routes().follow((views + x.sin()).grad_fn, 0, made, marked) is views.grad_fn


def test_what_is_too_far_is_given_up(x: Tensor) -> None:
    """A bound on what a single step may cost."""
    first, routes = x.exp(), Counted()
    made, module = number(), x
    for _ in range(NODES + 1):
        module = module.sin()
    output = first.cos() + module
    for _ in range(2):
        assert routes.follow(output.grad_fn, 0, made, ()) is None
    assert routes.sought == 1
