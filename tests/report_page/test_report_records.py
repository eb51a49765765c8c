"""The records of a run as the page has them: bins, codes, the tree of calls, ranks. In bounded memory, and exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_builders import EVIL, MS, frames_of, save_run

from autoprof._reports.page.history import (
    FIRST,
    MISSING,
    PER_NAT,
    SLOW_STEPS,
    STEP_BINS,
    ZERO,
    QuantileBins,
    encode,
    read_history,
)


def _ns(code: int) -> float:
    return float(np.exp((code - FIRST) / PER_NAT))


@given(st.lists(st.integers(1, 10**14), min_size=1, max_size=50))
def test_a_code_keeps_a_duration_within_a_third_of_a_thousandth(values: list[int]) -> None:
    """From a nanosecond to a day."""
    codes = encode(np.array(values, dtype=np.int64))
    for value, code in zip(values, codes.tolist(), strict=True):
        assert abs(_ns(code) / value - 1) < 0.00034


def test_no_time_and_no_call_have_codes_of_their_own() -> None:
    """Zero is not unmeasured, and a negative difference of clocks is zero."""
    assert encode(np.array([0, -5, 1], dtype=np.int64)).tolist() == [ZERO, ZERO, FIRST]
    assert MISSING not in encode(np.array([0, 1, 10**15], dtype=np.int64))


def test_a_bin_has_the_median_and_the_95th_percentile() -> None:
    """Of the steps in which the row occurred: a missing one is not a zero."""
    bins = QuantileBins(4)
    for step, code in enumerate((10, MISSING, 30, 20, 50), 1):
        bins.add(step, np.array([code], dtype=np.uint16))
    p50, p95 = bins.result(1)
    assert (bins.first, bins.last) == ([1, 5], [4, 5])
    assert p50.tolist() == [[20, 50]]
    assert p95.tolist() == [[30, 50]]


def test_a_row_that_begins_late_is_missing_before() -> None:
    """Rows may be added during the run."""
    bins = QuantileBins(1)
    bins.add(1, np.array([7], dtype=np.uint16))
    bins.add(2, np.array([7] * 40, dtype=np.uint16))
    p50, _ = bins.result(40)
    assert p50.T.tolist() == [[7] + [MISSING] * 39, [7] * 40]


def test_a_long_run_has_no_more_bins_than_its_limit(tmp_path: Path) -> None:
    """The slowest steps are kept whole beside the bins."""
    steps = STEP_BINS + 100
    run = save_run(tmp_path, frames_of(steps, slow=(700,)))
    history = read_history(run / "rank0/steps.jsonl", 64)
    assert history.steps == steps - 2
    assert len(history.times.first) <= STEP_BINS
    assert len(history.row_times.first) <= 64
    assert len(history.slow) == SLOW_STEPS
    assert history.slow[0].step == 700
    assert _ns(int(history.slow[0].codes[0])) == pytest.approx(210 * MS, rel=0.001)


def test_the_phases_of_a_bin_add_up_to_its_mean_step(tmp_path: Path) -> None:
    """A phase that a step lacks counts as zero."""
    history = read_history(save_run(tmp_path, frames_of(50)) / "rank0/steps.jsonl", 64)
    assert sum(column[0] or 0.0 for column in history.phases.result().values()) == 100 * MS


def test_a_cut_line_is_skipped_and_counted(tmp_path: Path) -> None:
    """The last line after ``kill -9``."""
    path = save_run(tmp_path, frames_of(20)) / "rank0/steps.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    history = read_history(path, 64)
    assert (history.steps, history.bad_lines) == (17, 1)


def test_memory_is_that_of_all_steps_and_a_bin_has_the_largest(tmp_path: Path) -> None:
    """Warm-up included: an allocator's peak is often there."""
    history = read_history(save_run(tmp_path, frames_of(2 * STEP_BINS)) / "rank0/steps.jsonl", 64)
    values = history.memory.result()["rss_bytes"]
    assert (len(values), values[0], values[-1]) == (STEP_BINS, 1_000_000_002, 1_000_000_000 + 2 * STEP_BINS)


def _payload(run: Path) -> dict[str, Any]:
    from autoprof._reports.page.payload import run_payload
    from autoprof._storage.runs import read_run
    from autoprof.diagnose import saved_summary

    opened = read_run(run)
    found: dict[str, Any] = json.loads(json.dumps(run_payload(opened, saved_summary(opened)), allow_nan=False))
    return found


def test_a_run_that_was_killed_has_its_records(tmp_path: Path) -> None:
    """Without a summary, its figures are computed from them."""
    found = _payload(save_run(tmp_path, frames_of(20), closed=False))
    assert found["steps"] == 18
    assert any("not closed" in note for note in found["notes"])
    assert dict(map(tuple, found["about"]))["ended"].startswith("not closed")


def test_a_run_that_its_program_left_open_is_a_closed_one(tmp_path: Path) -> None:
    """``run.json`` says ``exit``; the page says it in words, and warns of nothing."""
    run = save_run(tmp_path, frames_of(20))
    info = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps({**info, "ended": "exit"}))
    assert dict(map(tuple, _payload(run)["about"]))["ended"] == "closed when the program ended"


def test_a_run_without_records_has_its_summary(tmp_path: Path) -> None:
    """The tree is made of the summary, and adds up."""
    run = save_run(tmp_path, frames_of(20))
    (run / "rank0/steps.jsonl").unlink()
    found = _payload(run)
    assert sum(one["ns"] for one in found["tree"] if not one["depth"]) == 100 * MS
    assert found["records"] is None


def test_an_empty_run_says_so(tmp_path: Path) -> None:
    """Nothing recorded is a sentence, not zeros."""
    found = _payload(save_run(tmp_path, frames_of(2)))
    assert "nothing was recorded" in found["empty"]


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    """The others are shown."""
    run = save_run(tmp_path, frames_of(20), world_size=3)
    save_run(tmp_path, frames_of(20), rank=2, world_size=3)
    assert _payload(run)["ranks"]["missing"] == [1]


def test_the_ranks_are_compared_on_the_page(tmp_path: Path) -> None:
    """From their records where the run has not saved a comparison: which rank, in which steps and rows."""
    run = save_run(tmp_path, frames_of(40), world_size=2)
    save_run(tmp_path, frames_of(40, slow=range(1, 41), extra_ms=30), rank=1, world_size=2)
    found = _payload(run)["ranks"]
    assert found["text"].startswith("Rank 1 takes 30.0 ms")
    assert (found["slow"], found["ranks"], found["rows"][0]) == ([1], [0, 1], ["data", "data"])
    assert [times[0] for times in found["excess"]] == [-30_000, 30_000]


def test_ranks_that_cannot_be_compared_are_a_sentence(tmp_path: Path) -> None:
    """The other rank's records are on another machine."""
    found = _payload(save_run(tmp_path, frames_of(40), world_size=2))["ranks"]
    assert "could not be compared: the records of rank 1" in found["text"]


def test_names_are_in_the_data_as_they_are(tmp_path: Path) -> None:
    """Only the page escapes them."""
    assert EVIL in _payload(save_run(tmp_path, frames_of(20)))["rows"]["texts"]
