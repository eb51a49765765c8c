"""The spike-camera branch: an encoder of 3D convolutions at four scales, and attention along time on each scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from torch import Tensor, nn
from torch.nn import functional as F

from .attention import FeedForward, WindowAttention
from .presets import ModelConfig

SCALES: Final = 4
"""Scales of the spike branch: 1, 1/2, 1/4 and 1/8 of the resolution of the frames."""


class Residual3D(nn.Module):
    """Refine features with two 3D convolutions and a residual sum: (B, C, T, H, W) to the same shape."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(dim, dim, 3, padding=1)
        self.conv2 = nn.Conv3d(dim, dim, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` plus the output of the convolutions."""
        return x + cast(Tensor, self.conv2(F.gelu(self.conv1(x))))


class SpikeScale3D(nn.Module):
    """Project (stride 1) or halve the resolution (stride 2), then refine: (B, C, T, H, W)."""

    def __init__(self, channels: int, dim: int, stride: int) -> None:
        super().__init__()
        self.project = nn.Conv3d(channels, dim, 3, stride=(1, stride, stride), padding=1)
        self.residual = Residual3D(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return features with ``dim`` channels, rows and columns divided by the stride, all frames kept."""
        return cast(Tensor, self.residual(F.gelu(self.project(x))))


class SpikeEncoder3D(nn.Module):
    """Encode a spike stream at four scales."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.spike_dim
        self.scales = nn.ModuleList(
            SpikeScale3D(dim if scale else config.spike_bins, dim, 2 if scale else 1) for scale in range(SCALES)
        )

    def forward(self, spike: Tensor) -> list[Tensor]:
        """Map (B, T, S, H, W) to four tensors (B, C, T, H / 2^i, W / 2^i)."""
        # Frames have the brightness of a pixel; spikes have its change during the exposure. The factor
        # brings these small differences to the size that the convolutions' initial weights expect.
        x = 4 * (spike - spike.mean(dim=2, keepdim=True)).transpose(1, 2)
        features = []
        for scale in self.scales:
            x = scale(x)
            features.append(x)
        return features


class SpikeTemporalScale(nn.Module):
    """Apply attention along time at each pixel, and a feed-forward network, to one scale."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.spike_dim
        self.attention = WindowAttention(dim, config.heads, (config.frames, 1, 1), mutual=False)
        self.ffn = FeedForward(dim)

    def forward(self, features: Tensor) -> Tensor:
        """Map (B, C, T, H, W) to (B, T, H, W, C)."""
        x: Tensor = features.permute(0, 2, 3, 4, 1)
        x = x + cast(Tensor, self.attention(x))
        return x + cast(Tensor, self.ffn(x))


class SpikeTemporalSA(nn.Module):
    """Relate the spikes of different frames, on each of the four scales separately."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scales = nn.ModuleList(SpikeTemporalScale(config) for _ in range(SCALES))

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Map four tensors (B, C, T, H / 2^i, W / 2^i) to four (B, T, H / 2^i, W / 2^i, C)."""
        return [scale(x) for scale, x in zip(self.scales, features, strict=True)]
