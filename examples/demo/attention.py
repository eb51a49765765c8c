"""Windowed attention over space and time, and the block built on it (TMSA of VRT, arXiv:2201.12288).

Tensors are laid out as (B, T, H, W, C) throughout, so that norms and linear layers need no transposition.
Attention is written out as matmul, softmax, matmul, as in the published model: every step of it is deterministic
on CUDA, which the fused kernels' backward is not.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .presets import ModelConfig

Size3 = tuple[int, int, int]
"""Frames, rows, columns."""


def split_windows(x: Tensor, window: Size3) -> Tensor:
    """Cut (B, T, H, W, C) into (B, windows, tokens of a window, C)."""
    b, t, h, w, c = x.shape
    wt, wh, ww = window
    x = x.view(b, t // wt, wt, h // wh, wh, w // ww, ww, c)
    return x.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(b, -1, wt * wh * ww, c)


def join_windows(x: Tensor, window: Size3, size: Size3) -> Tensor:
    """Undo ``split_windows``: (B, windows, tokens, C) into (B, T, H, W, C), with ``size`` = (T, H, W)."""
    (t, h, w), (wt, wh, ww) = size, window
    x = x.view(x.shape[0], t // wt, h // wh, w // ww, wt, wh, ww, x.shape[-1])
    return x.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(x.shape[0], t, h, w, x.shape[-1])


def small_linear(inputs: int, outputs: int) -> nn.Linear:
    """Return the last layer of a residual branch: small weights, so that training starts near the identity."""
    linear = nn.Linear(inputs, outputs)
    nn.init.trunc_normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear


class WindowAttention(nn.Module):
    """Attend within windows of space and time: (B, T, H, W, C) to the same shape.

    With ``mutual``, windows must hold two frames, and each frame also attends to the other one, where a blurred
    frame finds the sharp detail of its neighbour.
    """

    def __init__(self, dim: int, heads: int, window: Size3, *, mutual: bool) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.scale = (dim // heads) ** -0.5
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.qkv_mutual = nn.Linear(dim, 3 * dim) if mutual else None
        self.project = small_linear(2 * dim if mutual else dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention's output; the caller adds it to ``x``."""
        size = cast(Size3, tuple(x.shape[1:4]))
        return join_windows(self._windows(split_windows(self.norm(x), self.window)), self.window, size)

    def _windows(self, x: Tensor) -> Tensor:
        out = self._attend(*self._heads(self.qkv(x)))
        if self.qkv_mutual is not None:
            half = x.shape[2] // 2
            q, k, v = self._heads(self.qkv_mutual(x))
            first = self._attend(q[..., :half, :], k[..., half:, :], v[..., half:, :])
            second = self._attend(q[..., half:, :], k[..., :half, :], v[..., :half, :])
            out = torch.cat([torch.cat([first, second], dim=2), out], dim=-1)
        return cast(Tensor, self.project(out))

    def _heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, windows, tokens, c = qkv.shape
        q, k, v = qkv.view(b, windows, tokens, 3, self.heads, c // (3 * self.heads)).permute(3, 0, 1, 4, 2, 5)
        return q * self.scale, k, v

    @staticmethod
    def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ((q @ k.transpose(-2, -1)).softmax(dim=-1) @ v).transpose(2, 3).flatten(3)


class FeedForward(nn.Module):
    """Mix channels with a gated GELU: (..., C) to the same shape."""

    def __init__(self, dim: int, expansion: int = 2) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.inner = nn.Linear(dim, 2 * expansion * dim)
        self.outer = small_linear(expansion * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's output; the caller adds it to ``x``."""
        gate, value = self.inner(self.norm(x)).chunk(2, dim=-1)
        return cast(Tensor, self.outer(F.gelu(gate) * value))


class TMSA(nn.Module):
    """Attend, then mix channels, both residual and each with its own activation checkpointing."""

    def __init__(self, config: ModelConfig, *, mutual: bool) -> None:
        super().__init__()
        side = config.window if mutual else config.window // 2
        # A window of all frames has half the side, so that a token meets about as many keys either way.
        window = (2 if mutual else config.frames, side, side)
        self.attention = WindowAttention(config.dim, config.heads, window, mutual=mutual)
        self.ffn = FeedForward(config.dim)
        self.use_checkpoint_attn = config.use_checkpoint_attn
        self.use_checkpoint_ffn = config.use_checkpoint_ffn

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H, W, C) to the same shape."""
        x = x + self._run(self.attention, x, self.use_checkpoint_attn)
        return x + self._run(self.ffn, x, self.use_checkpoint_ffn)

    def _run(self, module: nn.Module, x: Tensor, recompute: bool) -> Tensor:
        if not (recompute and torch.is_grad_enabled()):
            return cast(Tensor, module(x))
        # These modules draw no random numbers, so the generators' state need not be saved.
        out = checkpoint(module, x, use_reentrant=False, preserve_rng_state=False)
        return cast(Tensor, out)
