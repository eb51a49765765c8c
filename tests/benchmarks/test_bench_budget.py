"""The account that says whether a budget is kept, on runs whose cost is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autoprof import Phase, Span, StepFrame
from autoprof.testing import make_frame
from benchmarks.budget.__main__ import main
from benchmarks.budget.account import BARE, RECORDED, SWITCHED, kinds_of_steps, overhead_by_steps
from benchmarks.budget.runs import Run

BARE_NS = 1000
NO_LAYERS = np.empty((0, 0), dtype=np.int64)


def recorded(step: int, gap: int = 0) -> StepFrame:
    """Return the frame of a step with one span, so many unsampled steps before it."""
    return make_frame([Span("A", "a", Phase.FORWARD, None, 0, 100)], step=step, duration_ns=BARE_NS, gap_steps=gap)


def a_run(**extra_ns: int) -> Run:
    """Return twelve steps, of which 1, 2 and 9 to 10 were recorded; ``stepN`` took that much longer."""
    times = np.full(12, BARE_NS, dtype=np.int64)
    for name, ns in extra_ns.items():
        times[int(name.removeprefix("step")) - 1] += ns
    return Run(times, NO_LAYERS, [recorded(1), recorded(2), recorded(9, gap=6), recorded(10)], None)


def test_steps_around_a_gap_are_known() -> None:
    """Hooks go on at the last step of a gap."""
    assert kinds_of_steps(a_run()).tolist() == [
        RECORDED, RECORDED, BARE, BARE, BARE, BARE, BARE, SWITCHED, RECORDED, RECORDED, BARE, BARE,
    ]  # fmt: skip


@pytest.mark.parametrize("step", ["step1", "step8", "step10"])
def test_what_a_step_of_ours_took_longer_is_overhead(step: str) -> None:
    """Recorded or around a gap: 600 ns of twelve microseconds."""
    assert overhead_by_steps(a_run(**{step: 600}), 0.0) == pytest.approx(600 / 12_000)


def test_a_long_step_of_ours_is_no_outlier_of_the_machines() -> None:
    """All recorded steps take ten times as long: that is what recording costs."""
    long = a_run(step1=9000, step2=9000, step9=9000, step10=9000)
    assert overhead_by_steps(long, 0.0) == pytest.approx(4 * 9000 / 12_000)


def test_counting_down_is_overhead_in_every_step() -> None:
    """Seven nanoseconds of ``session.step()``, in all of them."""
    assert overhead_by_steps(a_run(), 7.0) == pytest.approx(7 / (BARE_NS - 7))


def test_an_outlier_of_a_bare_step_is_left_out() -> None:
    """The machine did something else."""
    assert overhead_by_steps(a_run(step6=100_000), 0.0) == pytest.approx(0.0)


def test_a_run_without_bare_steps_has_no_answer() -> None:
    """And so keeps no budget."""
    run = Run(np.full(2, BARE_NS, dtype=np.int64), NO_LAYERS, [recorded(1), recorded(2)], None)
    assert np.isnan(overhead_by_steps(run, 0.0))


def test_the_command_measures_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One length of step, three budgets; the status says whether every bound held."""
    status = main(["--scale", "0.003", "--rounds", "1", "--steps", "0.3", "--output", str(tmp_path)])
    lines = [line for line in capsys.readouterr().out.splitlines() if " ms, 9 modules" in line]
    assert len(lines) == 6  # as they come, and all together at the end
    cells = json.loads((tmp_path / "budget.json").read_text())["cells"]
    assert [cell["budget"] for cell in cells] == [0.005, 0.01, 0.05]
    assert all(cell["names"] for cell in cells)
    assert status == int(any("FAIL" in line or "open" in line for line in lines))
