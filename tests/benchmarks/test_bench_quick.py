"""A whole quick run, and the parts that it leaves out, each as short as it can be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import micro
from benchmarks.__main__ import main
from benchmarks.options import parse
from benchmarks.workloads import tiny_layers

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


@pytest.fixture
def _threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("_threads")
def test_a_quick_run_prints_a_table_and_writes_samples_and_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sample is in the JSON, and the JSON renders to the same table again."""
    monkeypatch.setattr("benchmarks.traceml.find_spec", lambda name: None)
    main(["--quick", "--models", "layers", "--rounds", "2", "--parts", "models", "--output", str(tmp_path)])
    table = capsys.readouterr().out
    results = json.loads((tmp_path / "benchmarks.json").read_text())
    measured = results["workloads"]["layers"]
    assert set(measured["blocks"]) | set(measured["errors"]) == set(measured["labels"])
    assert all(len(blocks) == 2 and blocks[0]["steps_ns"] for blocks in measured["blocks"].values())
    assert results["machine"]["torch"] == torch.__version__
    assert (tmp_path / "benchmarks.png").read_bytes().startswith(b"\x89PNG")
    assert "floor: forward hooks + node prehooks" in table
    assert "bound of" in table

    main(["--report", str(tmp_path / "benchmarks.json"), "--output", str(tmp_path / "again")])
    assert capsys.readouterr().out.splitlines()[:-2] == table.splitlines()[:-2]


def test_the_table_fits_a_hundred_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also the verdict of a run in which nothing was measured."""
    main(["--quick", "--parts", "", "--models", "layers", "--output", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 100


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names that are known."""
    with pytest.raises(SystemExit):
        parse(["--models", "layer"])
    assert "allowed: layers, reference, gpt" in capsys.readouterr().err


def test_single_costs_are_measured() -> None:
    """Each of them comes out as a number."""
    assert all(isinstance(cost, float) for cost in micro.user_spans(1).values())
    assert micro.setup([tiny_layers(torch.device("cpu"))], 1)["layers"]["modules"] == 40


_KEEPING = """
import resource, sys, torch
from benchmarks.machine import keep_memory
sys.exit(3) if not keep_memory() else None
faults = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    large = [torch.ones(2 * 2**20) for _ in range(8)]
    del large
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[0], faults[-1])
"""


def test_an_allocator_that_keeps_memory_has_no_faults_for_it() -> None:
    """Tensors of 64 MiB that are made anew take the pages of those before, but for a piece that was cut off."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", _KEEPING], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("the allocator is not glibc's")
    first, last = map(int, done.stdout.split())
    assert last < first / 2
