"""The longest steps: a quantile with its interval, and which steps another process has disturbed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.tails import AFTER_SWITCH, LANES, quiet, render, tail, train


def test_the_quantile_is_the_step_that_one_in_ten_thousand_exceeds() -> None:
    """Its interval is that of the number of steps beyond it: 10 ± 6 of 100,000."""
    found = tail(np.arange(100_000) * 1_000)
    assert (found["p9999_ms"], found["low_ms"], found["high_ms"]) == (99.99, 99.984, 99.996)
    assert found["max_ms"] == 99.999
    assert found["long"] == 100_000 - 2_001


def test_steps_that_lost_the_processor_and_a_few_after_them_are_not_quiet() -> None:
    """Their caches hold what another process needed."""
    lost = np.zeros(20, dtype=np.int64)
    lost[[0, 10]] = 1, 3
    disturbed = np.flatnonzero(~quiet(lost)).tolist()
    assert disturbed == [*range(1 + AFTER_SWITCH), *range(10, 11 + AFTER_SWITCH)]


@pytest.mark.parametrize("lane", LANES)
def test_a_run_saves_each_step(tmp_path: Path, lane: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A short one, bare and recorded."""
    threads = torch.get_num_threads()
    try:
        train(lane, 30, tmp_path / "times.npy", sinks={})
    finally:
        torch.set_num_threads(threads)
    times = np.load(tmp_path / "times.npy")
    assert times.shape == (3, 30)
    assert (times[:2] > 0).all()
    lines = render({lane: {"time": tail(times[0])} for lane in LANES})
    assert lines[-1] == "time: p99.99 is 1.00 × the bare one (at most 1.5)"
