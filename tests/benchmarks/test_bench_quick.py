"""A whole quick run, and the parts that it leaves out, each as short as it can be."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch

from benchmarks import faults, further, memory, micro, micro_step, steady, worst
from benchmarks.__main__ import main
from benchmarks.options import parse
from benchmarks.table import further_lines, steady_lines
from benchmarks.variant import Variant
from benchmarks.verdict import verdict
from benchmarks.workloads import tiny_layers

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


@pytest.fixture
def _threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


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
    ends = micro_step.ends(1, sizes=(10,))["10"]
    assert ends["spans"] >= 10
    assert ends["first_sight_ns"] > 0
    assert set(micro_step.sinks(1, sizes=(10,))) == set(micro_step.SINKS)
    assert micro.setup([tiny_layers(torch.device("cpu"))], 1)["layers"]["modules"] == 40


@pytest.mark.usefixtures("_threads")
def test_the_cost_of_a_further_module_is_measured_on_two_chains() -> None:
    """Every variant on both, in turns, and a table of what each module more costs."""
    measured = further.run(2, steps=2)
    assert {name: set(blocks) for name, blocks in measured["blocks"].items()} == {
        "short": set(further.VARIANTS),
        "long": set(further.VARIANTS),
    }
    assert all(len(blocks) == 2 for blocks in measured["blocks"]["long"].values())
    title, *lines = further_lines(measured)
    assert "40 and of 160" in title
    assert len(lines) == 2 + len(further.VARIANTS) - 1


@pytest.mark.usefixtures("_threads")
def test_the_memory_of_a_real_training_is_read_beside_the_growth_by_the_count_of_flops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are counted at once where there is no budget."""
    levels = count(1000)  # each reading finds a byte more
    monkeypatch.setattr(memory.HostMemory, "level_bytes", lambda _: next(levels))
    first, last = memory.train((20, 40), sinks={}, sample={"budget": None})
    assert (first["steps"], last["steps"]) == (20, 40)
    assert last["rss_bytes"] > first["rss_bytes"]
    assert first["flop_count_bytes"] == last["flop_count_bytes"] > 0
    assert memory.train((5,), sinks={})[0]["flop_count_bytes"] == 0


@pytest.mark.parametrize("path", memory.PATHS)
def test_a_long_run_is_read_at_its_points(path: str) -> None:
    """And its session has lost nothing, or it would raise."""
    readings = memory.drive(path, (50, 250), trace=False)
    assert [reading["steps"] for reading in readings] == [50, 250]
    assert all(reading["rss_bytes"] > 0 for reading in readings)


def test_the_slowest_steps_of_each_lane_are_described() -> None:
    """With what the garbage collector did in each."""
    tails = worst.run(worst.CHUNK)
    assert all(tails[name]["steps"] == worst.CHUNK for name in ("bare", "session", "sinks"))
    # One object of another thread may appear meanwhile; what a step leaves appears each time.
    assert not tails["survivors"]["session"] or any(not worst.survivors()["session"] for _ in range(2))


def test_the_long_run_is_measured_beside_bare_steps() -> None:
    """Each variant has a block a round, on the scale of the round's bare steps, and the table has a line for it."""
    measured = steady.run(1, steps=10, settling=5)
    assert {name: [block["round"] for block in blocks] for name, blocks in measured["blocks"].items()} == {
        name: [0] for name in ("bare", *steady.LABELS)
    }
    title, *lines = steady_lines(measured)
    assert "1 rounds of 10 steps" in title
    assert len(lines) == 2 + len(steady.LABELS)


def test_the_reference_workload_takes_turns_with_bare_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session that stays open: each turn has a value of both, and the bound is that of their ratio."""
    monkeypatch.setattr(steady, "REFERENCE_IN_TURN", 1)
    measured = steady.run_reference(1, size="tiny", turns=2, settling=1)
    assert [block["round"] for block in measured["blocks"]["full"]] == [0, 1]
    assert [block["round"] for block in measured["blocks"]["bare"]] == [0, 1]
    for name, value in (("bare", 100.0), ("full", 102.0)):
        measured["blocks"][name] = [{"round": number, "value_ns": value} for number in range(12)]
    results = {"options": {"size": "tiny"}, "workloads": {}, "steady_reference": measured}
    (bound,) = (one for one in verdict(results) if "full config" in one.subject)
    assert bound.measured == "1.020 [1.020, 1.020]"
    assert bound.passed is False


def test_a_processor_that_is_slow_while_one_variant_runs_changes_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bare steps are as slow."""
    speeds = iter(range(1, 100))

    def measure(*_arguments: object) -> tuple[float, float]:
        speed = next(speeds)
        return 1500.0 * speed, 1000.0 * speed

    monkeypatch.setattr(steady, "_measure", measure)
    blocks = steady.run(1)["blocks"]
    bare_ns = blocks["bare"][0]["value_ns"]
    assert [blocks[name][0]["value_ns"] / bare_ns for name in steady.LABELS] == [pytest.approx(1.5)] * len(
        steady.LABELS
    )


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


@pytest.mark.usefixtures("_threads")
def test_page_faults_are_counted_by_step() -> None:
    """Each step has its count, and warm-up steps have none."""
    counted = faults.count(Variant(), 2, "tiny")
    assert len(counted) == 2
    assert min(counted) >= 0
