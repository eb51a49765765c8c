"""The sizes of the reference workload: from a quick test to a training that fills a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Describe a ``VRTWithSpike``."""

    dim: int
    """Channels of the video trunk; must be divisible by ``heads``."""
    spike_dim: int
    """Channels of the spike branch; must be divisible by ``heads``."""
    heads: int
    """Attention heads, of the trunk and of the spike branch."""
    depth: int
    """Blocks of mutual attention per stage, followed by half as many (at least one) of self-attention."""
    reconstruction_depth: int
    """Blocks of self-attention in each of the two reconstruction groups of ``stage8``."""
    window: int
    """Side of a mutual-attention window in pixels; must be even. Self-attention windows have half the side."""
    frames: int
    """Frames of a clip (T); must be even, because mutual attention works on pairs."""
    spike_bins: int
    """Planes into which the spikes of one frame are counted (S)."""
    use_checkpoint_attn: bool = False
    """Recompute the attention of the trunk in backward instead of keeping its activations."""
    use_checkpoint_ffn: bool = False
    """Recompute the feed-forward networks of the trunk in backward instead of keeping their activations."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Describe one size of the demo: the model and the training that suits it."""

    model: ModelConfig
    crop: int
    """Side of a training crop in pixels; must be divisible by 4 x ``model.window``, the window at 1/4 resolution."""
    batch: int
    steps: int
    """Training steps when the user names no number."""
    learning_rate: float


PRESETS: Final[dict[str, Preset]] = {
    "tiny": Preset(
        ModelConfig(dim=8, spike_dim=8, heads=2, depth=1, reconstruction_depth=2, window=4,
                    frames=2, spike_bins=4),
        crop=16, batch=2, steps=100, learning_rate=2e-3,
    ),
    "small": Preset(
        ModelConfig(dim=24, spike_dim=16, heads=2, depth=1, reconstruction_depth=2, window=6,
                    frames=4, spike_bins=8),
        crop=48, batch=2, steps=120, learning_rate=2e-3,
    ),
    "large": Preset(
        ModelConfig(dim=96, spike_dim=96, heads=6, depth=4, reconstruction_depth=4, window=8,
                    frames=6, spike_bins=8),
        crop=192, batch=1, steps=300, learning_rate=4e-4,
    ),
}  # fmt: skip
