"""Attention that keeps its scores is found in a count, in whatever words it is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from flops_models import counted
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention

HEADS, LENGTH, WIDTH = 2, 6, 4
PRODUCTS = 2 * 2 * (3 * HEADS * LENGTH * LENGTH * WIDTH)
"""Two products for each of three samples."""


class Attention(nn.Module):
    """Attend in a given way."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.weight
        return self.attend(x, x, x)


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    scores = (q @ k.mT).masked_fill(hidden, float("-inf")) + 0.0
    return dropout(scores.softmax(-1), 0.1) @ v


def joined(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (one.flatten(0, 1) for one in (q, k, v))
    scores = torch.baddbmm(torch.zeros(1, 1, 1), q, k.mT, beta=0, alpha=0.5)
    return torch.bmm(scores.softmax(2), v)


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
WRITTEN_OUT: dict[str, Attend] = {
    "scaled": lambda q, k, v: torch.softmax(q @ k.mT / 2, -1) @ v,
    "masked and dropped out": masked,
    "einsum": lambda q, k, v: torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v),
    "cast": lambda q, k, v: (q @ k.mT).double().softmax(3).float() @ v,
    "heads joined": joined,
}
OTHERS: dict[str, Attend] = {
    "fused": scaled_dot_product_attention,
    "linear attention": lambda q, k, v: q.softmax(-1) @ (k.softmax(-2).mT @ v),
    "softmax over the queries": lambda q, k, v: (q @ k.mT).softmax(-2) @ v,
    "no softmax": lambda q, k, v: (q @ k.mT).relu() @ v,
}


def inputs() -> Tensor:
    """Make heads of three samples."""
    return torch.randn(3, HEADS, LENGTH, WIDTH)


@pytest.mark.parametrize("how", WRITTEN_OUT)
def test_a_softmax_between_two_products_is_attention(how: str) -> None:
    """Scaled, masked, dropped out, cast, or as an ``einsum``: the work of both products is that of its module."""
    count = counted(nn.Sequential(Attention(WRITTEN_OUT[how])), inputs())
    assert count.attention == {("0", False): PRODUCTS}


def test_sdpas_math_kernel_is_told_apart() -> None:
    """On the CPU dropout keeps SDPA from its fused kernel."""
    attend = partial(scaled_dot_product_attention, dropout_p=0.1)
    assert counted(nn.Sequential(Attention(attend)), inputs()).attention == {("0", True): PRODUCTS}


@pytest.mark.parametrize("how", OTHERS)
def test_what_is_fused_or_no_such_attention_is_not_taken_for_it(how: str) -> None:
    """No softmax over the keys lies between two products of the model's own."""
    assert counted(nn.Sequential(Attention(OTHERS[how])), inputs()).attention == {}
