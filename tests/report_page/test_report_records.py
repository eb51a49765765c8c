"""The records of a run as the page has them: bins, the slowest steps, ranks. In bounded memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from report_builders import MS, frames_of, save_run, summary_of

from autoprof._reports.page.history import BINS, SLOW_STEPS, QuantileBins, RunHistory, read_history
from autoprof._reports.page.payload import run_payload
from autoprof._storage.runs import read_run
from autoprof.diagnose import saved_summary


def test_a_bin_has_the_median_and_the_95th_percentile() -> None:
    """Of the steps in which the row occurred: a missing one is not a zero."""
    bins = QuantileBins(4)
    for step, ns in enumerate((10, np.nan, 30, 20, 50), 1):
        bins.add(step, np.array([ns], dtype=np.float32))
    assert bins.result().tolist() == [[[20, 50]], [[30, 50]], [[30, 50]]]
    assert (bins.first, bins.last) == ([1, 5], [4, 5])


def _history(run: Path) -> RunHistory:
    return read_history(run / "rank0/steps.jsonl", summary_of(frames_of(3)).rows)


def test_a_long_run_has_no_more_bins_than_its_limit(tmp_path: Path) -> None:
    """The slowest steps are kept whole beside the bins; memory is that of the warm-up, too."""
    steps = 2 * BINS
    history = _history(save_run(tmp_path, frames_of(steps, slow=(700,))))
    p50, _, most = history.times.result()
    assert (history.steps, p50.shape) == (steps - 2, (9, BINS - 1))
    assert (p50[0, 9], most[0].max()) == (100 * MS, 300 * MS)
    assert (len(history.slow), history.slow[0].step) == (SLOW_STEPS, 700)
    assert 210 * MS in history.slow[0].times
    memory = history.memory.result()["rss_bytes"]
    assert (len(memory), memory[0], memory[-1]) == (BINS, 1_000_000_002, 1_000_000_000 + steps)


def test_the_phases_of_a_bin_add_up_to_its_mean_step(tmp_path: Path) -> None:
    """A phase that a step lacks counts as zero."""
    history = _history(save_run(tmp_path, frames_of(50)))
    assert sum(column[0] or 0.0 for column in history.phases.result().values()) == 100 * MS


def test_a_cut_line_is_skipped_and_counted(tmp_path: Path) -> None:
    """The last line after ``kill -9``."""
    run = save_run(tmp_path, frames_of(20))
    path = run / "rank0/steps.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    history = _history(run)
    assert (history.steps, history.bad_lines) == (17, 1)


def _payload(run: Path) -> dict[str, Any]:
    opened = read_run(run)
    found: dict[str, Any] = json.loads(json.dumps(run_payload(opened, saved_summary(opened)), allow_nan=False))
    return found


def test_a_run_that_was_killed_has_its_records(tmp_path: Path) -> None:
    """Without a summary, its figures are computed from them."""
    found = _payload(save_run(tmp_path, frames_of(20), closed=False))
    assert found["steps"] == 18
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


def test_the_ranks_are_compared_on_the_page(tmp_path: Path) -> None:
    """From their records where the run has not saved a comparison: which rank, in which steps and rows."""
    run = save_run(tmp_path, frames_of(40), world_size=2)
    save_run(tmp_path, frames_of(40, slow=range(1, 41), extra_ms=30), rank=1, world_size=2)
    found = _payload(run)["ranks"]
    assert found["text"].startswith("Rank 1 takes 30.0 ms")
    assert (found["slow"], found["ranks"], found["rows"][0]) == ([1], [0, 1], ["data", "data"])
    assert [times[0] for times in found["excess"]] == [-30_000, 30_000]


def test_ranks_that_cannot_be_compared_are_a_sentence(tmp_path: Path) -> None:
    """The records of another rank are on another machine; the page names it."""
    found = _payload(save_run(tmp_path, frames_of(40), world_size=2))["ranks"]
    assert "could not be compared" in found["text"]
    assert found["missing"] == [1]
