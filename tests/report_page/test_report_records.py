"""The records of a run as the page has them: bins, the slowest steps, ranks. In bounded memory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from report_builders import MS, ROWS, frame_of, frames_of, layout_of, save_run

from autoprof.base.storage.runs import read_run
from autoprof.base.summary import Stage
from autoprof.diagnose import saved_summary
from autoprof.reports.page.history import BINS, SLOW_STEPS, RunHistory, read_history
from autoprof.reports.page.payload import run_payload


def _history(run: Path) -> RunHistory:
    return read_history(run / "rank0/steps.jsonl", saved_summary(read_run(run)))


def test_a_long_run_has_no_more_bins_than_its_limit(tmp_path: Path) -> None:
    """A bin has the mean and the maximum of its steps; the slowest steps are kept whole beside the bins."""
    steps = 2 * BINS
    history = _history(save_run(tmp_path, frames_of(steps, slow=(700,))))
    assert (history.steps, len(history.bins)) == (steps - 2, BINS - 1)
    slow = next(one for one in history.bins if one.first <= 700 <= one.last)
    assert (slow.mean()[0], slow.most[0], history.bins[9].mean()[0]) == (200 * MS, 300 * MS, 100 * MS)
    assert sum(slow.phases.values()) == 2 * 200 * MS
    assert (len(history.slow), history.slow[0].frame.step) == (SLOW_STEPS, 700)
    assert 210 * MS in history.slow[0].times
    assert (history.bins[0].memory["rss_bytes"], history.bins[-1].last) == (1_000_000_004, steps)


def test_a_row_that_did_not_occur_is_no_zero(tmp_path: Path) -> None:
    """The mean is over the steps with it."""
    layout = layout_of(ROWS[:2])
    frames = [frame_of(layout, step, [10, 40], 100) for step in range(1, 1 + BINS)]
    run = save_run(tmp_path, [*frames, *frames_of(2 * BINS)[BINS:]])
    history = _history(run)
    rows = saved_summary(read_run(run)).rows
    optimizer = next(at for at, row in enumerate(rows) if row.name == "optimizer")
    assert np.isnan(history.bins[0].mean()[1 + optimizer])
    assert history.bins[-1].mean()[1 + optimizer] == 5 * MS


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


def test_the_stages_of_a_run_are_its_first_fact(tmp_path: Path) -> None:
    """Share of the wall time, time, and how often; the training counts its steps."""
    rollout = Stage("rollout", 3, 500 * MS, 3, chosen=True)
    run = save_run(tmp_path, frames_of(20), edit=lambda summary: replace(summary, stages=(rollout,)))
    word, text = _payload(run)["facts"][0]
    assert word == "stages"
    assert re.fullmatch(r"training \d+\.\d % \(.*, 20 steps\); rollout \d+\.\d % \(500\.0 ms, 3 times\)", text), text
