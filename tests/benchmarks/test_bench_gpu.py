"""The part of the GPU benchmarks that runs without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autoprof.testing import FakeClock, FakeDevice
from benchmarks import machine
from benchmarks.floors import ForwardFloor
from benchmarks.gpu import events, run, table
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.run import _on_host
from benchmarks.interleave import NO_TIME
from benchmarks.run import measure_workload
from benchmarks.variant import Variant
from benchmarks.workloads import tiny_layers


def device() -> FakeDevice:
    return FakeDevice(FakeClock(tick_ns=100))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_cuda_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with a status of its own."""
    assert main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_events_are_counted_and_reused() -> None:
    """Each mark is one event, none is waited for, and there are no more of them than some steps in a row need."""
    workload = tiny_layers(torch.device("cpu"))
    counted = events.per_step(device(), workload.model, workload.step, workload.config, steps=100)
    assert counted["recorded"] > 2 * len(workload.targets)
    assert counted["waited"] == 0
    assert counted["skipped"] == {}
    assert counted["made"]["100"] < 50 * counted["recorded"]


def test_the_table_shows_the_device_and_the_host() -> None:
    """One workload is two tables: until the device has finished, and the host's own time."""
    workload = tiny_layers(torch.device("cpu"))
    measured = measure_workload(workload, [Variant(), ForwardFloor()], rounds=1, progress=lambda line: None)
    measured["host_blocks"] = {
        name: [_on_host(block) for block in blocks] for name, blocks in measured["blocks"].items()
    }
    source = device()
    waits = {"error": None, "bare_error": None, "bare_ns": 1e6, "host_ns": 2e6, "device_ns": 4e8, "passed": True}
    kernel = {"expected_ns": 2e6, "measured_ns": None, "passed": False}
    results = {
        "machine": machine.describe(),
        "options": {},
        "workloads": {"layers": measured},
        "events": {
            **events.per_step(source, workload.model, workload.step, workload.config, steps=100),
            "costs": events.costs(source, source.device_clock(), lambda: None),
            "scatter": events.scatter(source, lambda: source.clock.advance(10**9), source.work),
        },
        "never_waits": {"layers": waits},
        "kernels": {"forward, main stream": kernel},
    }
    lines = table.render(results).splitlines()
    assert sum("floor: hand-written forward hooks" in line for line in lines) == 2
    assert any("no span" in line and "FAIL" in line for line in lines)
    assert max(map(len, lines)) <= 110


def test_a_check_that_fails_is_said_and_counts() -> None:
    """One failure is enough."""
    good, bad = {"passed": True}, {"passed": False}
    assert table.passed({"never_waits": {"layers": good}, "kernels": {"forward": good}})
    assert not table.passed({"never_waits": {"layers": good}, "kernels": {"forward": bad}})
    assert not table.passed({"failed": {"device": "Traceback\nRuntimeError: lost"}})
    assert list(table.left_out({"failed": {"device": "Traceback\nRuntimeError: lost"}})) == [
        "device FAILED: RuntimeError: lost"
    ]


def test_a_variant_of_autoprof_that_raises_fails_the_run() -> None:
    """One of another tool may break; one that time did not suffice for is left out, and said."""
    measured = {
        "title": "layers: 40",
        "rounds": 3,
        "rounds_wanted": 20,
        "labels": {"full": "autoprof: full", "floor": "floor", "hook": "full backward hook"},
        "families": {"full": "autoprof", "floor": "floor", "hook": "others"},
        "errors": {"floor": NO_TIME, "hook": "RuntimeError: broken"},
    }
    assert table.passed({"workloads": {"layers": measured}})
    assert list(table.left_out({"workloads": {"layers": measured}})) == [
        "left out for lack of time: layers: 17 rounds",
        "left out for lack of time: layers: floor",
    ]
    measured["errors"]["full"] = "AttributeError: no"  # type: ignore[index]
    assert not table.passed({"workloads": {"layers": measured}})


@pytest.mark.slow
def test_the_whole_run_works_on_the_simulated_accelerator(tmp_path: Path) -> None:
    """All parts but the tests, in their smallest form: neither a part nor a variant of autoprof fails."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "sim", "--quick", "--models", "layers"]
    command += ["--parts", ",".join(run.PARTS[1:]), "--output", str(tmp_path)]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr)
    results = json.loads((tmp_path / "gpu_sim.json").read_text())
    assert (results["failed"], tuple(results["seconds"])) == ({}, run.PARTS[1:])
    assert table.own_errors(results["workloads"]["layers"]) == []
    variants = results["workloads"]["layers"]["blocks"].keys()
    assert variants >= {"bare", "full", "record_both", "floor_both", "sync_timers"}
    assert [check["error"] for check in results["never_waits"].values()] == [None]
    assert all(check["measured_ns"] >= 0.99 * check["expected_ns"] for check in results["kernels"].values())
    assert (tmp_path / "gpu_sim.txt").read_text().strip() in done.stdout
