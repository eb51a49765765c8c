"""The clips: real photographs, physically plausible blur and spikes, nothing downloaded, the same in every run."""

from __future__ import annotations

import socket
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from autoprof.demo.data import (
    TRAINING,
    VALIDATION,
    BlurredClips,
    Clip,
    ClipShape,
    glide,
    integrate_and_fire,
    load_photographs,
    simulate,
)
from autoprof.errors import MissingExtra

SHAPE = ClipShape(frames=2, bins=4, side=16)


def test_the_photographs_need_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from the installed wheel: opening a socket would fail."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    for photograph in load_photographs(TRAINING + VALIDATION):
        assert photograph.dtype == np.uint8
        assert photograph.shape[2] == 3
        assert min(photograph.shape[:2]) >= 300


def test_a_missing_scikit_image_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "skimage.io", None)
    with pytest.raises(MissingExtra, match=r"pip install 'torch-autoprof\[demo\]'"):
        load_photographs()


def test_a_clip_depends_on_the_seed_and_its_number_alone() -> None:
    """Two datasets of one seed give the same clip in any order; another seed gives another."""
    photographs = load_photographs()
    first, again = (BlurredClips(photographs, SHAPE, 8, seed=3) for _ in range(2))
    last = again[7]
    assert all(torch.equal(a, b) for a, b in zip(first[7], last, strict=True))
    assert not torch.equal(first[7].rgb, BlurredClips(photographs, SHAPE, 8, seed=4)[7].rgb)


def test_a_loader_collates_clips() -> None:
    """Batches keep their names and gain a leading dimension."""
    clips = BlurredClips(load_photographs(), SHAPE, 4)
    batch = next(iter(DataLoader(clips, batch_size=4)))
    assert isinstance(batch, Clip)
    assert batch.rgb.shape == batch.sharp.shape == (4, 2, 3, 16, 16)
    assert batch.spike.shape == (4, 2, 4, 16, 16)


def test_the_dataset_ends() -> None:
    """Iteration without a loader stops at its length."""
    assert len(list(BlurredClips(load_photographs(), SHAPE, 3))) == 3


def test_values_are_displayable() -> None:
    """Frames and spikes lie in [0, 1]."""
    for clip in BlurredClips(load_photographs(), SHAPE, 8):
        assert all(part.min() >= 0 and part.max() <= 1 for part in clip)


def test_a_still_window_shows_the_photograph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without motion the sharp frame is a piece of the photograph, and the blurred one equals it."""
    monkeypatch.setattr("autoprof.demo.data.SPEED", (0.0, 0.0))
    photograph = load_photographs()[0][:48, :48]
    clip = simulate(photograph, SHAPE, np.random.default_rng(0))
    torch.testing.assert_close(clip.rgb, clip.sharp)
    piece = (clip.sharp[0].permute(1, 2, 0) * 255).round().numpy().astype(np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(photograph, (16, 16, 3))[:, :, 0]
    assert (windows == piece).all(axis=(2, 3, 4)).any()


def test_motion_blurs_the_frames() -> None:
    """A blurred frame has weaker slopes than the sharp one, on average over clips."""
    clips = list(BlurredClips(load_photographs(), SHAPE, 16))
    blurred, sharp = (sum(part.diff(dim=-1).abs().mean().item() for part in parts)
                      for parts in ([c.rgb for c in clips], [c.sharp for c in clips]))  # fmt: skip
    assert blurred < 0.9 * sharp


def test_a_photograph_that_is_too_small_is_refused() -> None:
    """The window must have room to move."""
    with pytest.raises(ValueError, match="too small for a moving window of 16 pixels"):
        glide(np.zeros((17, 17, 3), np.uint8), SHAPE, np.random.default_rng(0))


def test_spikes_integrate_to_the_light() -> None:
    """After any number of ticks a pixel's spikes differ from the light it received by less than one spike."""
    random = np.random.default_rng(0)
    light = random.uniform(0, 1, (40, 5, 5)).astype(np.float32)
    spikes = integrate_and_fire(light, random.uniform(0, 1, (5, 5)).astype(np.float32), ticks=1)
    assert set(np.unique(spikes)) <= {0.0, 1.0}
    assert np.abs(np.cumsum(spikes, axis=0) - np.cumsum(light, axis=0, dtype=np.float64)).max() < 1


def test_the_mean_rate_of_a_steady_pixel_is_its_luminance() -> None:
    """Brighter pixels fire more often, in proportion."""
    luminance = np.linspace(0, 1, 11, dtype=np.float32)
    light = np.broadcast_to(luminance, (50, 1, 11))
    rate = integrate_and_fire(light, np.zeros((1, 11), np.float32), ticks=4).mean(axis=0)
    np.testing.assert_allclose(rate[0], luminance, atol=1 / 200)
