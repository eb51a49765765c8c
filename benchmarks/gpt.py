"""A small GPT, written as people write them: blocks of LayerNorm, attention, LayerNorm, MLP."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Attend causally: (B, T, C) to the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention output of each position over those before it."""
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return cast(Tensor, self.project(y.transpose(1, 2).reshape(b, t, c)))


class Block(nn.Module):
    """Attend, then think: (B, T, C) to the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` plus the block's output."""
        x = x + self.attention(self.norm1(x))
        return x + cast(Tensor, self.mlp(self.norm2(x)))


class SmallGPT(nn.Module):
    """Predict the next token: (B, T) to (B, T, vocabulary)."""

    def __init__(
        self, *, vocabulary: int = 256, context: int = 64, width: int = 64, layers: int = 4, heads: int = 4
    ) -> None:
        super().__init__()
        self.vocabulary, self.context, self.width, self.layers = vocabulary, context, width, layers
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each position's next token."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return cast(Tensor, self.head(self.norm(x)))

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the cross entropy of (B, T + 1) tokens, each predicted from those before it."""
        logits = self(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
