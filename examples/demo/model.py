"""``VRTWithSpike``: a video-deblurring transformer with a spike-camera branch, like the published model.

Like VRT (arXiv:2201.12288) it is a U of stages of TMSA blocks, with ``stage8`` as a list of reconstruction layers that
is iterated and never called. Smaller on purpose: three resolutions instead of four, windows that are not shifted and
have no bias by position, and no warping by optical flow, which would need pretrained weights.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from .attention import TMSA, small_linear
from .presets import ModelConfig
from .spike import SCALES, SpikeEncoder3D, SpikeTemporalSA


class Downsample(nn.Module):
    """Merge 2 x 2 pixels into one: (B, T, H, W, C) to (B, T, H / 2, W / 2, C)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.merge = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the merged pixels."""
        b, t, h, w, c = x.shape
        x = x.view(b, t, h // 2, 2, w // 2, 2, c).permute(0, 1, 2, 4, 3, 5, 6).reshape(b, t, h // 2, w // 2, 4 * c)
        return cast(Tensor, self.merge(self.norm(x)))


class Upsample(nn.Module):
    """Spread one pixel over 2 x 2: (B, T, H, W, C) to (B, T, 2 H, 2 W, C)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.spread = nn.Linear(dim, 4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the spread pixels."""
        b, t, h, w, c = x.shape
        x = self.spread(self.norm(x)).view(b, t, h, w, 2, 2, c)
        return x.permute(0, 1, 2, 4, 3, 5, 6).reshape(b, t, 2 * h, 2 * w, c)


class Stage(nn.Module):
    """Change the resolution, then attend: pairs of frames first, all frames after."""

    def __init__(self, config: ModelConfig, reshape: nn.Module) -> None:
        super().__init__()
        self.reshape = reshape
        self.residual_group1 = nn.Sequential(*(TMSA(config, mutual=True) for _ in range(config.depth)))
        self.linear1 = small_linear(config.dim, config.dim)
        self.residual_group2 = nn.Sequential(*(TMSA(config, mutual=False) for _ in range(max(1, config.depth // 2))))
        self.linear2 = small_linear(config.dim, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, H, W, C) to the stage's resolution, same channels."""
        x = self.reshape(x)
        x = x + self.linear1(self.residual_group1(x))
        return x + cast(Tensor, self.linear2(self.residual_group2(x)))


class Reconstruction(nn.Module):
    """Attend over all frames at full resolution (RTMSA of VRT): (B, T, H, W, C) to the same shape."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(TMSA(config, mutual=False) for _ in range(config.reconstruction_depth)))
        self.linear = small_linear(config.dim, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` plus the output of the blocks."""
        return x + cast(Tensor, self.linear(self.blocks(x)))


class Fusion(nn.Module):
    """Add spike features to the features of an encoder stage, which may have twice their resolution."""

    def __init__(self, config: ModelConfig, *, upsample: bool) -> None:
        super().__init__()
        self.resize: nn.Module = Upsample(config.spike_dim) if upsample else nn.Identity()
        self.mix = nn.Linear(config.dim + config.spike_dim, config.dim)

    def forward(self, x: Tensor, spike: Tensor) -> Tensor:
        """Map (B, T, H, W, C) and the spike features of the same scale to (B, T, H, W, C)."""
        return x + cast(Tensor, self.mix(torch.cat([x, self.resize(spike)], dim=-1)))


class VRTWithSpike(nn.Module):
    """Deblur a clip with the help of a spike stream of the same scene.

    Encoder stages 1 to 4 work at 1, 1/2, 1/4 and 1/4 of the resolution, the bottleneck 5 at 1/4, the decoder stages 6
    and 7 at 1/2 and 1; ``stage8`` reconstructs at full resolution. Spike features join after each encoder stage. All
    weights come from torch's generator: the same seed gives the same model.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.dim
        self.spike_encoder = SpikeEncoder3D(config)
        self.spike_attention = SpikeTemporalSA(config)
        self.embed = nn.Conv3d(3, dim, (1, 3, 3), padding=(0, 1, 1))
        self.stage1 = Stage(config, nn.Identity())
        self.stage2 = Stage(config, Downsample(dim))
        self.stage3 = Stage(config, Downsample(dim))
        self.stage4 = Stage(config, nn.Identity())
        # The last spike scale (1/8) has no stage of its own: it joins at 1/4.
        self.fusions = nn.ModuleList(Fusion(config, upsample=scale == SCALES - 1) for scale in range(SCALES))
        self.stage5 = Stage(config, nn.Identity())
        self.stage6 = Stage(config, Upsample(dim))
        self.stage7 = Stage(config, Upsample(dim))
        self.stage8 = nn.ModuleList(
            [
                nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim)),
                Reconstruction(config),
                Reconstruction(config),
            ]
        )
        self.restore = nn.Conv3d(dim, 3, (1, 3, 3), padding=(0, 1, 1))
        # Start near "return the blurred clip", yet with a gradient for every parameter from the first step.
        nn.init.trunc_normal_(self.restore.weight, std=1e-3)
        nn.init.zeros_(cast(Tensor, self.restore.bias))

    def forward(self, rgb: Tensor, spike: Tensor) -> Tensor:
        """Map a blurred clip (B, T, 3, H, W) in [0, 1] and spikes (B, T, S, H, W) to the sharp clip (B, T, 3, H, W)."""
        spikes = self.spike_attention(self.spike_encoder(spike))
        x = self.embed(rgb.transpose(1, 2)).permute(0, 2, 3, 4, 1)
        x = self._features(x, spikes)
        residual = self.restore(x.permute(0, 4, 1, 2, 3)).transpose(1, 2)
        return rgb + cast(Tensor, residual)

    def _features(self, x: Tensor, spikes: list[Tensor]) -> Tensor:
        encoded = []
        stages = (self.stage1, self.stage2, self.stage3, self.stage4)
        for stage, fusion, spike in zip(stages, self.fusions, spikes, strict=True):
            x = fusion(stage(x), spike)
            encoded.append(x)
        x = self.stage5(x)
        x = self.stage6(x + encoded[2])
        x = self.stage7(x + encoded[1])
        x = x + encoded[0]
        for layer in self.stage8:
            x = layer(x)
        return x
