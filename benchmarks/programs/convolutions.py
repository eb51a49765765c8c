"""Train a chain of 30 convolutions; it knows nothing of autoprof."""

from __future__ import annotations

import sys

import torch
from torch import nn


def main(steps: int, size: int) -> None:
    """Train for so many steps on images of this size."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(30)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images = torch.randn(8, 16, size, size)
    for _ in range(steps):
        loss = model(images).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
