"""The page of other projects' scripts: its figures are those of the results, and wrong counts are marked."""

import json

from benchmarks.scripts.__main__ import PAGE, RESULTS
from benchmarks.scripts.report import render_page


def test_the_page_shows_the_results() -> None:
    """``benchmarks/results/scripts.md`` is written from the JSON file."""
    assert PAGE.read_text("utf-8") == render_page(json.loads(RESULTS.read_text("utf-8")))
