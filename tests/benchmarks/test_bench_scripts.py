"""The page of other projects' scripts: wrong counts are marked, and scripts without a result are named."""

from typing import Any

from benchmarks.scripts.registry import SCRIPTS
from benchmarks.scripts.report import is_right, page

ONE = SCRIPTS[0]


def result(found: int) -> dict[str, Any]:
    """Return the result of a script with 61 steps of its own."""
    run = {"steps": found, "overhead": 0.01, "findings": [], "longest": None}
    return {"counted": [[61]], "runs": [run]}


def test_the_page_counts_what_is_right() -> None:
    """Steps that were not found make a script wrong."""
    good, bad = ("\n".join(page({ONE.name: result(found)})) for found in (61, 60))
    assert "steps are right in 1 of 1 scripts" in good
    assert f"| {ONE.name} | 61 → 61 | 1.0 % |" in good
    assert f"| {ONE.name} | 61 → 60 **wrong** |" in bad
    assert f"{SCRIPTS[1].name} (not run)" in good


def test_a_script_without_a_run_is_not_right() -> None:
    """An error is no result."""
    assert not is_right(ONE, {"error": "no checkout"})
