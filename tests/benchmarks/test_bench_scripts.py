"""The page of other projects' scripts: its figures are those of the results, and wrong counts are marked."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.scripts.__main__ import PAGE, RESULTS
from benchmarks.scripts.report import render_page


def _saved(steps: list[list[int]], *found: int) -> dict[str, Any]:
    """Return the results of one script."""
    kind = {"status": 0, "steps": steps, "between_ms": 10.0}
    runs = [{"steps": one, "overhead": 0.01, "findings": [], "longest": None} for one in found]
    return {"results": {"MNIST": {"load": 0.5, "bare": kind, "autoprof": kind, "runs": runs}}}


def test_the_page_shows_the_results() -> None:
    """``benchmarks/results/scripts.md`` is written from the JSON file."""
    assert PAGE.read_text("utf-8") == render_page(json.loads(RESULTS.read_text("utf-8")))


def test_optimizers_in_turn_make_one_step() -> None:
    """With two optimizers in turn, a step has a step of each."""
    assert "| 32 and 32 → 32 |" in render_page(_saved([[32, 32]], 32))


def test_trainings_one_after_another_add_up() -> None:
    """With a run for each training of a process, the runs have all steps together."""
    assert "| 8 and 8 → 8 + 8 |" in render_page(_saved([[8, 8]], 8, 8))
