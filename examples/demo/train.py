"""The training loop of the demo: an ordinary PyTorch loop, with the few lines of autoprof that profile it."""
# mypy: allow-untyped-calls
# (torch leaves Tensor.backward without types.)

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader

import autoprof

from .data import BlurredClips, Clip, load_photographs
from .losses import deblurring_loss
from .model import VRTWithSpike
from .presets import PRESETS


def train(size: str, steps: int | None, device: str, config: Any) -> list[float]:
    """Train ``VRTWithSpike`` on blurred photographs under autoprof; return the loss of each step.

    Attention and feed-forward networks are checkpointed, as in the original training. The same arguments give the same
    losses.
    """
    preset = PRESETS[size]
    steps = preset.steps if steps is None else steps
    torch.manual_seed(0)
    model = VRTWithSpike(replace(preset.model, use_checkpoint_attn=True, use_checkpoint_ffn=True)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=preset.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    clips = BlurredClips(load_photographs(), preset, steps * preset.batch)
    loader: DataLoader[Clip] = DataLoader(clips, preset.batch, pin_memory=torch.device(device).type == "cuda")
    losses = torch.zeros(steps, device=device)
    exact = torch.backends.cudnn.flags(enabled=True, deterministic=True)
    with exact, autoprof.instrument(model, config, optimizer=optimizer) as session:
        for step, batch in enumerate(session.loader(loader)):
            clip = Clip(*(part.to(device, non_blocking=True) for part in batch))
            restored = model(clip.rgb, clip.spike)
            loss = deblurring_loss(restored, clip.sharp)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()

            losses[step] = loss.detach()
            session.log(loss=loss.detach(), lr=schedule.get_last_lr()[0], samples=len(clip.rgb))
            session.step()
    found: list[float] = losses.tolist()
    return found
