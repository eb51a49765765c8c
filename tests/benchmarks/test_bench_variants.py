"""Every variant runs on the worst case and leaves nothing behind."""

import tempfile
from pathlib import Path

import pytest
import torch

from benchmarks.interleave import run_block
from benchmarks.run import all_variants
from benchmarks.workloads import tiny_layers

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")
NAMES = [variant.name for variant in all_variants()]


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_leaves_the_model_without_hooks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a folder: what is opened for a block is closed after it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    workload = tiny_layers(torch.device("cpu"))
    (variant,) = (variant for variant in all_variants() if variant.name == name)
    block = run_block(workload, variant, 0, warmup=1, steps=2)
    variant.shutdown()
    assert len(block.steps_ns) == len(block.ends_ns) == 2
    assert workload.hooks() == 0
    # torch makes a cache of compiled code where the count of FLOPs imports its compiler first
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor_")]
