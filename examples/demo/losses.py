"""The training loss, with ``span`` and ``@timed`` as in a user's program."""

from __future__ import annotations

import torch
from torch import Tensor

import autoprof


def charbonnier(difference: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Average a smooth absolute value: sqrt(d^2 + epsilon^2)."""
    return torch.sqrt(difference * difference + epsilon * epsilon).mean()


@autoprof.timed("Loss/Edge")
def edge_loss(restored: Tensor, sharp: Tensor) -> Tensor:
    """Compare the slopes along rows and columns, where blur is largest: (B, T, 3, H, W) to a scalar."""
    difference = restored - sharp
    return charbonnier(difference.diff(dim=-1)) + charbonnier(difference.diff(dim=-2))


def deblurring_loss(restored: Tensor, sharp: Tensor, edge_weight: float = 0.5) -> Tensor:
    """Add the error of the values and of the slopes: (B, T, 3, H, W) to a scalar."""
    with autoprof.span("Loss/Charbonnier"):
        values = charbonnier(restored - sharp)
    edges: Tensor = edge_loss(restored, sharp)
    return values + edge_weight * edges
