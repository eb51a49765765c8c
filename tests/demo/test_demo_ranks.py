"""The demo on several ranks: which are launched, which one is slow, and which one writes for people."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import autoprof
from autoprof import demo
from autoprof.cli import make_parser
from autoprof.demo import arguments_of, ranks, run
from autoprof.demo.data import Clip
from autoprof.demo.model import VRTWithSpike
from autoprof.demo.ranks import SLOW_MODULE, launched_ranks, own_device, slow_down
from autoprof.demo.train import DemoOptions, training_loader
from autoprof.errors import AutoprofError

ROOT = Path(autoprof.__file__).parents[1]


def parse(*words: str) -> argparse.Namespace:
    """Parse a command line of ``autoprof demo``."""
    return make_parser("demo").parse_args(["demo", *words])


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without the variables of a launcher."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_a_slow_rank_without_a_launcher_launches_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks get the same arguments, and the exit status is theirs."""
    launched: list[Any] = []
    monkeypatch.setattr(demo, "launch", lambda count, arguments: launched.append((count, arguments)) or 3)
    words = ["--slow-rank=2", "--size=small", "--no-checkpoint", "--seed=5", "--steps=9", "--output=there"]
    assert run(parse(*words)) == 3
    ((count, arguments),) = launched
    assert count == 4
    assert parse(*arguments) == parse(*words)


@pytest.mark.parametrize("words", [(), ("--checkpoint", "--slow-rank", "0"), ("--config", "my config.yaml")])
def test_arguments_are_passed_on_as_they_were(words: tuple[str, ...]) -> None:
    """Those that were not given are not given to the ranks either."""
    assert parse(*arguments_of(parse(*words))) == parse(*words)


@pytest.mark.parametrize(
    ("slow", "world_size", "message"),
    [
        (4, None, "--slow-rank 4: there are 4 ranks; allowed: 0 to 3"),
        (2, 2, "--slow-rank 2: there are 2 ranks; allowed: 0 to 1"),
        (0, 1, "--slow-rank 0: the launcher started one rank; start two or more, or none: then 4 are started"),
    ],
)
def test_a_rank_that_does_not_exist_is_refused(
    slow: int, world_size: int | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is launched or trained, with the numbers that are allowed."""
    if world_size is not None:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", str(world_size))
    with pytest.raises(AutoprofError) as raised:
        run(parse("--slow-rank", str(slow)))
    assert message in str(raised.value)


def test_ranks_are_those_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both variables are needed, and they are numbers."""
    assert launched_ranks() is None
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert launched_ranks() is None
    monkeypatch.setenv("RANK", "one")
    assert launched_ranks() is None
    monkeypatch.setenv("RANK", "1")
    assert launched_ranks() == 4


def test_each_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """``cuda`` is that of the rank's number on its machine; a named one is taken as it is."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert [own_device(name) for name in ("cuda", "cuda:1", "cpu")] == ["cuda:3", "cuda:1", "cpu"]


def test_ranks_beyond_the_number_of_gpus_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth of four ranks on two GPUs is on the second one."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device("cuda") == "cuda:1"


def test_the_slow_rank_computes_the_same(
    tiny_model: Callable[..., VRTWithSpike], batch: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps once in each backward, and not a bit of the gradients changes."""
    slept: list[float] = []
    monkeypatch.setattr(ranks.time, "sleep", slept.append)
    gradients = []
    for slow in (False, True):
        model = tiny_model()
        if slow:
            slow_down(model, 0.25)
        model(batch.rgb, batch.spike).square().mean().backward()
        assert len(slept) == slow
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert slept == [0.25]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert isinstance(tiny_model().get_submodule(SLOW_MODULE), torch.nn.Module)


def test_each_rank_trains_on_clips_of_its_own() -> None:
    """And the first one on those of a training on one rank."""
    alone, first, second = (
        next(iter(training_loader(DemoOptions(size="tiny", steps=1, ranks=where), torch.device("cpu"))))
        for where in (ranks.DemoRanks(), ranks.DemoRanks(0, 2), ranks.DemoRanks(1, 2))
    )
    assert torch.equal(alone.sharp, first.sharp)
    assert not torch.equal(first.sharp, second.sharp)


@pytest.mark.slow
def test_torchrun_names_the_slow_rank_and_leaves_one_trace(tmp_path: Path) -> None:
    """One display, one summary, one folder with the records of all ranks; it takes about a minute."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", "-m", "autoprof"]
    done = subprocess.run(
        [*command, "demo", "--slow-rank", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert sorted(path.name for path in folder.glob("rank*")) == ["rank0", "rank1", "rank2", "rank3"]
    assert (folder / "trace.json").stat().st_size > 10_000
    assert done.stdout.count("Verdict ") == 1
    assert re.search(r"straggler: VRT/Stage5 backward on rank 2", " ".join(done.stdout.split())), done.stdout
