"""The clips: real photographs, physically plausible blur and spikes, nothing downloaded, the same in every run."""

from __future__ import annotations

import sys

import pytest
import torch

from autoprof.errors import MissingExtra
from examples.demo.data import BlurredClips, load_photographs
from examples.demo.presets import PRESETS

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


def test_spikes_are_whole_numbers_near_the_light() -> None:
    """A pixel has 0 to 16 spikes in a sub-frame."""
    spikes = 16 * BlurredClips(load_photographs(), TINY, 1)[0].spike
    assert torch.equal(spikes, spikes.round())
    assert 0 <= spikes.min() < spikes.max() <= 16
