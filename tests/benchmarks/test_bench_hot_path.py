"""The comparison of the default with a record of every module finds what does not agree, and says it."""

import json
from pathlib import Path

import pytest

from benchmarks.hot_path import Agreement, Record, main, page


def record(error: float = 0.0, **shares: float) -> Record:
    """Return a record of these shares, half of each in forward, with a standard error."""
    phases = {name: {"forward": one / 2, "backward": one / 2} for name, one in shares.items()}
    return Record(phases, dict.fromkeys(shares, error), 90, 5_000_000)


def compared(default: Record, full: Record) -> list[str]:
    """Return the problems of the two records."""
    return Agreement("X", 100, default, full).problems


class TestAgreement:
    """What counts as agreeing."""

    def test_the_same_shares_agree(self) -> None:
        """Also if shorter rows are missing from the default."""
        assert compared(record(a=0.4, b=0.3, c=0.2), record(a=0.4, b=0.3, c=0.2, d=0.05)) == []

    def test_a_difference_by_chance_is_none(self) -> None:
        """Within two standard errors of it."""
        assert compared(record(error=0.02, a=0.3), record(error=0.02, a=0.25)) == []
        assert len(compared(record(error=0.01, a=0.3), record(error=0.01, a=0.25))) == 1

    def test_a_long_module_without_a_row(self) -> None:
        """The default stopped above it: a sentence each for the missing row and the one that holds its time."""
        assert compared(record(a=0.4, block=0.5), record(a=0.4, inner=0.45, block=0.05)) == [
            "inner, 45.0% of the step, has no row",
            "block: 50.0% by default, 5.0% in the full record",
            "a is longer than block in the full record",
        ]


def test_the_page_shows_both_sides_and_each_problem() -> None:
    """A table of the models, then the longest rows of each; what did not run is said."""
    good = Agreement("Good", 200, record(a=0.4, b=0.3), record(a=0.41, b=0.3))
    bad = Agreement("Bad", 200, record(a=0.4), record(inner=0.4))
    text = "\n".join(page([good, bad], ["Third (x is not installed)"]))
    assert "**Result**: 1 of 2 known architectures agree" in text
    assert "| Good | 5.00 ms | 200 | 90 | 2 | 2 | yes |" in text
    assert "- Bad: `inner, 40.0% of the step, has no row`" in text
    assert "| `a` | 40.0% | 20.0%, 20.0% | `a` | 41.0% | 20.5%, 20.5% |" in text
    assert "- Not run: Third (x is not installed)" in text


@pytest.mark.slow
def test_the_command_compares_in_a_process_of_its_own(tmp_path: Path) -> None:
    """A few steps of the smallest model; the status says whether it agrees."""
    page, raw = tmp_path / "hot_path.md", tmp_path / "hot_path.json"
    status = main(["--quick", "--page", str(page), "--raw", str(raw)])
    (result,) = json.loads(raw.read_text())["results"]
    assert result["full"]["recorded"] > 0
    assert status == bool(result["problems"])
    assert "small GPT" in page.read_text()
