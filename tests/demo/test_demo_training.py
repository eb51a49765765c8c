"""The training: the loss falls, and the command's options mean what they say."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import autoprof
from autoprof.errors import AutoprofError
from autoprof.frontends.cli import make_parser
from examples.demo import run
from examples.demo.data import Clip
from examples.demo.losses import deblurring_loss
from examples.demo.model import VRTWithSpike
from examples.demo.train import train


def parse(*words: str) -> argparse.Namespace:
    """Parse a command line of ``autoprof demo``."""
    return make_parser("demo").parse_args(["demo", *words])


def test_the_loss_falls_on_a_fixed_batch(tiny_model: Callable[..., VRTWithSpike], batch: Clip) -> None:
    """Twenty steps of plain PyTorch on real clips take at least a fifth off the loss."""
    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(20):
        loss = deblurring_loss(model(batch.rgb, batch.spike), batch.sharp)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_training_reports_every_step(tmp_path: Path) -> None:
    """A profiled training gives one loss a step, and the summary of a run."""
    sample = {"warmup": 1, "budget": None}
    rules = [{"match": r"\w+"}]
    config = {"targets": rules, "output": str(tmp_path), "sinks": {"jsonl": {}}, "flops": "off", "sample": sample}
    assert len(train("tiny", 4, "cpu", config)) == 4
    (folder,) = tmp_path.iterdir()
    summary = autoprof.read_run(folder).summary
    assert summary is not None
    assert summary.warmup_steps >= 1
    assert summary.steps + summary.warmup_steps == 4  # a step after a long pass is warm-up too


def test_the_same_seed_trains_alike() -> None:
    """Two trainings of one seed give the same losses to the last bit."""
    first, again = (train("tiny", 2, "cpu", {"sinks": {}}) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("words", [("--steps", "0"), ("--size", "huge"), ("--steps", "many")])
def test_a_wrong_option_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The parser exits with status 2 and names the option."""
    with pytest.raises(SystemExit, match="2"):
        parse(*words)
    assert words[0] in capsys.readouterr().err


def test_a_device_that_is_not_there_is_refused() -> None:
    """The error names the option and what is allowed, before anything is trained."""
    with pytest.raises(AutoprofError, match=r"--device cuda:99: .*; allowed here: cpu"):
        run(parse("--device", "cuda:99"))
