"""``python -m benchmarks.compiled.side_by_side eager|compiled``: a small GPT, on a GPU where there is one.

Two runs of each, compared by ``autoprof compare --a runs/eager/* --b runs/compiled/*``, show by module what compilation
gains.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

import autoprof

STEPS, LAYERS, WIDTH, HEADS, BATCH, LENGTH, WORDS = 300, 12, 768, 8, 16, 256, 1024


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return out


class MLP(nn.Module):
    """Two layers around a GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(nn.functional.gelu(self.up(x)))
        return out


class Block(nn.Module):
    """Attention and MLP, each behind a normalisation and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), MLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class GPT(nn.Module):
    """An embedding, blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


def main(kind: str) -> None:
    """Train and record."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = GPT().to(device)
    run = torch.compile(model) if kind == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters())
    session = autoprof.instrument(model, {"output": f"runs/{kind}"}, optimizer=optimizer)
    for _ in range(STEPS):
        ids = torch.randint(0, WORDS, (BATCH, LENGTH + 1), device=device)
        with torch.autocast(device, torch.bfloat16):
            out = run(ids[:, :-1])
        loss: Any = nn.functional.cross_entropy(out.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.close()


if __name__ == "__main__":
    main(sys.argv[1])
