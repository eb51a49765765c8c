"""What a case of the zoo is: a fresh model, what draws its next batch, and how a loss is made of its output."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from bits import tensors_in
from torch import Tensor, nn

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def total(output: Any) -> Tensor | None:
    """Return one number that all outputs with a gradient have a part in, or None if there is none."""
    parts = []
    for tensor in tensors_in(output):
        if tensor.requires_grad and not tensor.is_quantized:
            dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
            dense = dense.abs() if dense.is_complex() else dense
            parts.append(dense.float().pow(2).mean() if dense.numel() else dense.sum())
    return sum(parts[1:], parts[0]) if parts else None


class Subject(NamedTuple):
    """A model ready to train: ``draw`` makes a step's arguments, ``loss`` a number of its output (None: no backward).

    ``around`` runs the model in place of ``model(*args, **kwargs)``; ``backward`` runs in place of ``loss.backward()``.
    """

    model: nn.Module
    draw: Callable[[], Arguments]
    loss: Callable[[Any], Tensor | None] = total
    around: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any] | None = None
    backward: Callable[[Tensor, nn.Module], None] | None = None


@dataclass(frozen=True)
class Case:
    """A case by name; ``build`` returns a fresh subject, the same one after the same seed."""

    family: str
    name: str
    build: Callable[[], Subject]

    def __str__(self) -> str:
        return f"{self.family}/{self.name}"


def subject(model: nn.Module, *arguments: Callable[[], Any], **more: Any) -> Subject:
    """Return a subject whose positional arguments are drawn one by one."""
    return Subject(model, lambda: (tuple(draw() for draw in arguments), {}), **more)


def normal(*shape: int, grad: bool = False) -> Callable[[], Tensor]:
    """Return what draws a normal tensor of this shape."""
    return lambda: torch.randn(shape, requires_grad=grad)


def integers(high: int, *shape: int) -> Callable[[], Tensor]:
    """Return what draws integers from 0 to ``high`` - 1."""
    return lambda: torch.randint(0, high, shape)


def seed_everything(seed: int) -> None:
    """Seed torch, Python and numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
