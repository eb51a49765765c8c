"""Blurred clips and spike streams made from real photographs.

A window glides over a photograph. Each frame of the clip is one exposure: S sub-frames, averaged in linear light. The
same sub-frames drive a simulated spike camera, whose spikes are counted per sub-frame. The target is the sub-frame in
the middle of the exposure. The photographs come with scikit-image's wheel and are read from there: nothing is
downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from autoprof.errors import MissingExtra

from .presets import Preset

Image = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

PHOTOGRAPHS: Final = ("astronaut.png", "coffee.png", "rocket.jpg", "motorcycle_left.png")
GAMMA: Final = 2.2
"""Display to linear light, near enough to sRGB's curve: light adds up in a sensor, display values do not."""
LUMINANCE: Final = np.array([0.2126, 0.7152, 0.0722], dtype=np.float32)
"""Weights of linear red, green and blue (ITU-R BT.709)."""
SPEED: Final = (0.8, 2.0)
"""Slowest and fastest motion, in pixels per sub-frame."""
TICKS: Final = 16
"""The most spikes of a pixel per sub-frame."""


class Clip(NamedTuple):
    """One training pair, or a batch of them with a leading B."""

    rgb: Tensor
    """Blurred frames (T, 3, H, W), display values in [0, 1]."""
    spike: Tensor
    """Spikes per tick (T, S, H, W), in [0, 1]."""
    sharp: Tensor
    """Sharp frames (T, 3, H, W), display values in [0, 1]."""


def load_photographs() -> list[Image]:
    """Read photographs (H, W, 3) from the installed scikit-image; ``MissingExtra`` where they are not."""
    try:
        from skimage.io import imread

        folder = files("skimage") / "data"
        return [np.ascontiguousarray(imread(str(folder / name))[..., :3]) for name in PHOTOGRAPHS]
    except (ImportError, FileNotFoundError) as error:
        raise MissingExtra(
            "autoprof demo: needs the photographs of scikit-image; pip install 'torch-autoprof[demo]'"
        ) from error


def glide(photograph: Image, preset: Preset, random: np.random.Generator) -> Floats:
    """Cut the sub-frames of one clip: linear light (T * S, H, W, 3) in [0, 1], moving on a slightly curved path."""
    ticks, side = preset.model.frames * preset.model.spike_bins, preset.crop
    angle = random.uniform(0, 2 * np.pi) + np.linspace(0, random.uniform(-0.6, 0.6), ticks)
    path = np.cumsum(random.uniform(*SPEED) * np.stack([np.sin(angle), np.cos(angle)], axis=1), axis=0)
    path -= path.min(axis=0)
    steps = np.rint(path).astype(np.int64)
    room = np.array(photograph.shape[:2]) - side - steps.max(axis=0)
    steps += (random.uniform(0, 1, 2) * (room + 1)).astype(np.int64)
    seen = np.stack([photograph[y : y + side, x : x + side] for y, x in steps.tolist()])
    return np.asarray((seen.astype(np.float32) / 255) ** np.float32(GAMMA))


def simulate(photograph: Image, preset: Preset, random: np.random.Generator) -> Clip:
    """Simulate one clip: blurred frames, the spikes of the same time, and the sharp frames in the middle."""
    light = glide(photograph, preset, random)
    frames, bins, side = preset.model.frames, preset.model.spike_bins, preset.crop
    # A spike camera counts light in whole spikes; its pixels are out of step with each other.
    spike = np.floor(TICKS * np.clip(light @ LUMINANCE, 0, 1) + random.uniform(0, 1, light.shape[:3])) / TICKS
    exposures = light.reshape(frames, bins, side, side, 3)
    return Clip(
        rgb=_display(exposures.mean(axis=1)),
        spike=torch.from_numpy(spike.reshape(frames, bins, side, side).astype(np.float32)),
        sharp=_display(exposures[:, bins // 2]),
    )


def _display(linear: Floats) -> Tensor:
    values: Any = np.clip(linear, 0, 1) ** np.float32(1 / GAMMA)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(0, 3, 1, 2), dtype=np.float32))


class BlurredClips(Dataset[Clip]):
    """Make clips on demand; clip i depends only on the seed and i, not on the worker that makes it."""

    def __init__(self, photographs: Sequence[Image], preset: Preset, length: int, *, seed: int = 0) -> None:
        self.photographs = tuple(photographs)
        self.preset = preset
        self.length = length
        self.seed = seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Clip:
        if not 0 <= index < self.length:
            raise IndexError(index)
        random = np.random.default_rng((self.seed, index))
        return simulate(self.photographs[index % len(self.photographs)], self.preset, random)
