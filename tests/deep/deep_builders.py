"""A small model and its training step, and readers of a trace."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

TARGETS: dict[str, Any] = {
    "targets": [{"match": r"blocks\.(\d)", "name": r"Block\1"}, {"match": r"blocks\.(\d)\.ff", "name": r"Block\1/FFN"}]
}


class Block(nn.Module):
    """Attention and a feed-forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.ff = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unsqueeze(1) for part in self.qkv(x).chunk(3, -1))
        x = x + nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1)
        return x + self.ff(x)


class Net(nn.Module):
    """Two blocks; ``checkpointed`` runs them again in the backward."""

    def __init__(self, width: int = 16, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x


class Program:
    """A training loop, step by step."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = Net(**options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs = torch.randn(2, 8, 16)

    def step(self) -> None:
        self.model(self.inputs).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a trace, which must be whole JSON."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return found


def ranges(path: Path) -> list[str]:
    """Return the names of the ranges of a trace, in the order of their starts."""
    found = [event for event in events(path) if event.get("cat") == "user_annotation"]
    return [event["name"] for event in sorted(found, key=lambda event: (event["ts"], -event["dur"]))]
