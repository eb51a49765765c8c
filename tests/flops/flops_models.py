"""Small models whose FLOPs can be computed by hand, and helpers that count a call."""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from autoprof.base.frame import Phase
from autoprof.probes.metrics.flops import FlopCount, ModelCall, count_call, describe


def call_of(model: nn.Module, *args: Any, backward: bool = True, **kwargs: Any) -> ModelCall:
    """Describe a call as a probe would see it."""
    return replace(describe(model, args, kwargs), backward=backward)


def counted(model: nn.Module, *args: Any, **kwargs: Any) -> FlopCount:
    """Count one call of the model; it must give a figure."""
    count = count_call(model, call_of(model, *args, **kwargs))
    assert count.reason is None, count.reason
    return count


def refused(model: nn.Module, *args: Any, **kwargs: Any) -> str:
    """Count one call of the model; it must give no figure. Return why."""
    count = count_call(model, call_of(model, *args, **kwargs))
    assert count.reason is not None
    assert not count.rows
    assert count.flops() is None
    return count.reason


def self_flops(count: FlopCount) -> dict[tuple[str, Phase], int]:
    """Return the FLOPs of each module and phase, without those of the modules inside."""
    found: Counter[tuple[str, Phase]] = Counter()
    for key, flops in count.rows.items():
        found[key.fqn, key.phase] += flops
    return dict(found)


class Residual(nn.Module):
    """A block of a ResNet: two convolutions of 3 x 3, and one of 1 x 1 beside them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.down = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return functional.relu(self.bn2(self.conv2(out)) + self.down(x), inplace=True)


class ResNet(nn.Module):
    """A stem, a block and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.block = Residual(8, 16, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))


class Block(nn.Module):
    """A block of a GPT: causal attention by torch's own function, then a network of two layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Token embedding, blocks (checkpointed on request: ``"early stop"`` or ``"reentrant"``), and a tied head."""

    def __init__(self, width: int = 16, heads: int = 4, depth: int = 2, words: int = 50, again: str = "") -> None:
        super().__init__()
        self.again = again
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.again == "reentrant") if self.again else block(x)
        return self.head(x)


def tokens(batch: int = 2, time: int = 8, words: int = 50) -> Tensor:
    """Return word numbers."""
    return torch.randint(words, (batch, time))
