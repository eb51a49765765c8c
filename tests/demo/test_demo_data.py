"""The clips: real photographs, physically plausible blur and spikes, nothing downloaded, the same in every run."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from autoprof.demo.data import (
    BlurredClips,
    integrate_and_fire,
    load_photographs,
)
from autoprof.demo.presets import PRESETS
from autoprof.errors import MissingExtra

TINY = PRESETS["tiny"]


def test_a_missing_scikit_image_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "skimage.io", None)
    with pytest.raises(MissingExtra, match=r"pip install 'torch-autoprof\[demo\]'"):
        load_photographs()


def test_a_clip_depends_on_the_seed_and_its_number_alone() -> None:
    """Two datasets of one seed give the same clip in any order; another seed gives another."""
    photographs = load_photographs()
    first, again = (BlurredClips(photographs, TINY, 8, seed=3) for _ in range(2))
    last = again[7]
    assert all(torch.equal(a, b) for a, b in zip(first[7], last, strict=True))
    assert not torch.equal(first[7].rgb, BlurredClips(photographs, TINY, 8, seed=4)[7].rgb)


def test_spikes_integrate_to_the_light() -> None:
    """After any number of ticks a pixel's spikes differ from the light it received by less than one spike."""
    random = np.random.default_rng(0)
    light = random.uniform(0, 1, (40, 5, 5)).astype(np.float32)
    spikes = integrate_and_fire(light, random.uniform(0, 1, (5, 5)).astype(np.float32), ticks=1)
    assert set(np.unique(spikes)) <= {0.0, 1.0}
    assert np.abs(np.cumsum(spikes, axis=0) - np.cumsum(light, axis=0, dtype=np.float64)).max() < 1
