"""The path to the node that runs next: searched once, then followed, searched again where it leads elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autoprof._capture.hooks.graph_search import SEARCH_NODES, GraphSearch


def number() -> int:
    """The number of the next node."""
    return torch.autograd._get_sequence_nr()


class CountedSearch(GraphSearch):
    """Counts how often a path was searched."""

    @property
    def searches(self) -> int:
        """Since the start."""
        return self._searches


def beside(x: Tensor, longer: bool = False) -> tuple[Tensor, int, Tensor]:
    """Make a node, then nodes as of a module, and their sum; return the sum, the module's first number, the node."""
    first = x.exp()
    made = number()
    module = x.sin().cos() if longer else x.sin()
    return first + module, made, first


@pytest.fixture
def x() -> Tensor:
    """A tensor with a node of its own."""
    return torch.ones(2, requires_grad=True) * 1.0


def test_the_newest_node_before_the_call_is_found_and_the_path_remembered(x: Tensor) -> None:
    """The second time nothing is searched."""
    search = CountedSearch()
    for _ in range(3):
        output, made, first = beside(x)
        assert search.find_node(output.grad_fn, 0, made, ()) is first.grad_fn
    assert search.searches == 1


def test_a_path_that_leads_elsewhere_is_searched_again(x: Tensor) -> None:
    """A module that changes from call to call has the right node each time."""
    search = CountedSearch()
    for longer in (False, True, False, True):
        output, made, first = beside(x, longer)
        assert search.find_node(output.grad_fn, 0, made, ()) is first.grad_fn
    assert search.searches == 2
    first = x.exp()
    made = number()
    output = x.sin() + first  # as far from the output as before, but by the other edge
    assert search.find_node(output.grad_fn, 0, made, ()) is first.grad_fn
    assert search.searches == 3


def test_a_node_that_marks_already_needs_no_mark(x: Tensor) -> None:
    """And it is not searched again."""
    search = CountedSearch()
    for _ in range(2):
        output, made, first = beside(x)
        assert search.find_node(output.grad_fn, 0, made, {first.grad_fn._sequence_nr()}) is None
    assert search.searches == 1


def test_views_alone_are_not_worth_a_mark(x: Tensor) -> None:
    """Their backward is a view; as soon as something else is among them, it is worth one."""
    marked = {x.grad_fn._sequence_nr()}
    views = x.view(2, 1).transpose(0, 1)
    made = number()
    assert GraphSearch().find_node((views + x.sin()).grad_fn, 0, made, marked) is None
    views = x.exp().view(2, 1).transpose(0, 1)
    made = number()
    assert GraphSearch().find_node((views + x.sin()).grad_fn, 0, made, marked) is views.grad_fn


def test_a_node_too_far_away_is_given_up(x: Tensor) -> None:
    """The search of one step has a bound."""
    first, search = x.exp(), CountedSearch()
    made, module = number(), x
    for _ in range(SEARCH_NODES + 1):
        module = module.sin()
    output = first.cos() + module
    for _ in range(2):
        assert search.find_node(output.grad_fn, 0, made, ()) is None
    assert search.searches == 1
