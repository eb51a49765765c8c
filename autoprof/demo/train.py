"""The training loop of the demo: an ordinary PyTorch loop, with the few lines of autoprof that profile it."""
# mypy: allow-untyped-calls
# (torch leaves Tensor.backward without types.)

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

import autoprof

from .data import VALIDATION, BlurredClips, Clip, ClipShape, load_photographs
from .losses import deblurring_loss, psnr
from .model import VRTWithSpike
from .presets import PRESETS, ModelConfig, Preset

if TYPE_CHECKING:
    from autoprof.summary import Summary


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of a training: size, device, steps."""

    size: str = "small"
    """``tiny``, ``small`` or ``large``."""
    steps: int | None = None
    """Training steps; None takes the size's own number."""
    device: str = "cpu"
    checkpoint: bool = True
    """Checkpoint attention and feed-forward networks of the trunk, as the original training does."""
    seed: int = 0
    workers: int = 0
    """Processes that make clips; 0 makes them in the training process."""

    @property
    def preset(self) -> Preset:
        """Return the size's preset."""
        return PRESETS[self.size]

    @property
    def step_count(self) -> int:
        """Return the number of steps to train."""
        return self.preset.steps if self.steps is None else self.steps

    @property
    def model_config(self) -> ModelConfig:
        """Return the model's description, checkpointing as asked for."""
        return replace(self.preset.model, use_checkpoint_attn=self.checkpoint, use_checkpoint_ffn=self.checkpoint)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of a training. PSNR is in dB, over clips of a photograph outside the training set."""

    steps: int
    seconds: float
    losses: tuple[float, ...]
    psnr_blurred: float
    psnr_restored: float
    summary: Summary

    @property
    def loss_first(self) -> float:
        """Average the loss over the first tenth of the steps."""
        count = math.ceil(self.steps / 10)
        return sum(self.losses[:count]) / count

    @property
    def loss_last(self) -> float:
        """Average the loss over the last tenth of the steps."""
        count = math.ceil(self.steps / 10)
        return sum(self.losses[-count:]) / count


def train(options: DemoOptions, config: Any = None) -> DemoResult:
    """Train ``VRTWithSpike`` on blurred photographs under autoprof; ``config`` is passed to ``instrument``."""
    steps, device = options.step_count, torch.device(options.device)
    torch.manual_seed(options.seed)
    model = VRTWithSpike(options.model_config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.preset.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_and_cosine(step, steps))
    loader = training_loader(options, device)
    validation = validation_clips(options, device)
    losses = torch.zeros(steps, device=device)

    started = time.perf_counter()
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        for step, batch in enumerate(session.loader(loader)):
            clip = to_device(batch, device)
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

            if step == steps // 2:
                with session.pause():
                    validate(model, validation)
        with session.pause():
            restored_psnr = validate(model, validation)
    return DemoResult(
        steps=steps,
        seconds=time.perf_counter() - started,
        losses=tuple(losses.tolist()),
        psnr_blurred=psnr(validation.rgb, validation.sharp).item(),
        psnr_restored=restored_psnr,
        summary=session.summary(),
    )


def warmup_and_cosine(step: int, steps: int) -> float:
    """Return the factor of the learning rate: a short warm-up, then half a cosine down to a twentieth."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1, steps - warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def training_loader(options: DemoOptions, device: torch.device) -> DataLoader[Clip]:
    """Return a loader of exactly as many batches as there are steps."""
    preset = options.preset
    count = options.step_count * preset.batch
    clips = BlurredClips(load_photographs(), ClipShape.of(preset), count, seed=options.seed)
    return DataLoader(clips, preset.batch, num_workers=options.workers, pin_memory=device.type == "cuda")


def validation_clips(options: DemoOptions, device: torch.device) -> Clip:
    """Return one batch of clips of a photograph that is not trained on, the same in every run."""
    shape = ClipShape.of(options.preset)
    clips = BlurredClips(load_photographs(VALIDATION), shape, 4, seed=1_000_003)
    batch: Clip = default_collate([clips[i] for i in range(len(clips))])
    return to_device(batch, device)


def validate(model: nn.Module, clips: Clip) -> float:
    """Return the PSNR in dB of the restored clips."""
    model.eval()
    with torch.no_grad():
        restored = model(clips.rgb, clips.spike)
    model.train()
    return psnr(restored, clips.sharp).item()


def to_device(clip: Clip, device: torch.device) -> Clip:
    """Copy a batch to the device; from pinned memory the copy does not wait."""
    return Clip(*(part.to(device, non_blocking=True) for part in clip))
