"""Every variant runs on the worst case and leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from benchmarks.interleave import run_block
from benchmarks.run import all_variants
from benchmarks.workloads import BUILDERS, tiny_layers

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")
NAMES = [variant.name for variant in all_variants("tiny", peer=False)]


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_leaves_the_model_without_hooks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a folder: what is opened for a block is closed after it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    workload = tiny_layers(torch.device("cpu"))
    (variant,) = (variant for variant in all_variants("tiny", peer=False) if variant.name == name)
    block = run_block(workload, variant, 0, warmup=1, steps=2)
    variant.shutdown()
    assert len(block.steps_ns) == len(block.ends_ns) == 2
    assert workload.hooks() == 0
    # torch makes a cache of compiled code where the count of FLOPs imports its compiler first
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor_")]


def test_the_names_are_those_that_the_verdict_looks_for() -> None:
    """A variant that is renamed would be reported as not measured."""
    assert {"bare", "never_opened", "closed", "idle", "record_forward", "record_both"} <= set(NAMES)
    assert {"session_forward", "session_both", "full", "floor_forward", "floor_both", "full_backward_hook"} <= set(
        NAMES
    )
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", ["gpt", "reference"])
def test_a_workload_trains(name: str) -> None:
    """Its parameters change, and its configuration chooses modules."""
    workload = BUILDERS[name](torch.device("cpu"), "tiny")
    before = [parameter.detach().clone() for parameter in workload.model.parameters()]
    workload.step()
    changed = [not torch.equal(a, b) for a, b in zip(before, workload.model.parameters(), strict=True)]
    assert sum(changed) > len(changed) // 2
    assert len(workload.targets) > 30
