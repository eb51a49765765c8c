"""The part of the GPU benchmarks that runs without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import run, table
from benchmarks.gpu.__main__ import main


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_cuda_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with a status of its own."""
    assert main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_a_check_that_fails_is_said_and_counts() -> None:
    """One failure is enough."""
    good, bad = {"passed": True}, {"passed": False}
    assert table.passed({"never_waits": {"layers": good, "gpt": good}})
    assert not table.passed({"never_waits": {"layers": good, "gpt": bad}})
    assert not table.passed({"failed": {"device": "Traceback\nRuntimeError: lost"}})
    assert list(table.left_out({"failed": {"device": "Traceback\nRuntimeError: lost"}})) == [
        "- device FAILED: RuntimeError: lost"
    ]


@pytest.mark.slow
def test_the_whole_run_works_on_the_simulated_accelerator(tmp_path: Path) -> None:
    """All parts but the tests, in their smallest form: neither a part nor a variant of autoprof fails."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "sim", "--quick", "--models", "layers"]
    command += [
        "--parts",
        ",".join(run.PARTS[1:]),
        "--page",
        str(tmp_path / "gpu.md"),
        "--raw",
        str(tmp_path / "gpu.json"),
    ]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 2:
        pytest.skip(f"needs the simulated accelerator: {done.stderr}")
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert (results["failed"], tuple(results["seconds"])) == ({}, run.PARTS[1:])
    layers = results["workloads"]["layers"]
    assert not [error for name, error in layers["errors"].items() if layers["labels"][name].startswith("autoprof")]
    measured = {name for name, pairs in layers["pairs"].items() if pairs["wall"]["own"]}
    assert measured >= {"recording", "sinks", "floor", "timers"}
    assert [check["error"] for check in results["never_waits"].values()] == [None]
    assert (tmp_path / "gpu.md").read_text().strip() in done.stdout
