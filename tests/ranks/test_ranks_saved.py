"""The comparison of a saved run's ranks: as the run has shown it, unless its records know more."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoprof._ranks import RankComparison, compare_saved, monitor

SHOWN = RankComparison(2, steps=100, own_ns=(10, 20), excess_ns=(10.0, 9.0, 11.0))


@pytest.mark.parametrize(
    ("read", "taken"),
    [
        (RankComparison(2, steps=110, own_ns=(10, 21)), False),
        (RankComparison(2, steps=200, own_ns=(10, 21)), True),
        (RankComparison(2, "the records of rank 1: not in this run's folder"), False),
        (None, False),
    ],
    ids=["as much", "twice the steps", "a rank is missing", "no records"],
)
def test_a_report_repeats_the_comparison_of_the_run_unless_the_records_have_more(
    read: RankComparison | None, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one of the same steps would print other figures than the terminal did."""
    monkeypatch.setattr(monitor, "read_ranks", lambda *_args, **_options: read)
    assert compare_saved(Path("run"), 2, SHOWN) is (read if taken else SHOWN)


def test_records_of_ranks_that_ended_after_rank_0_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own comparison lacks them, or there was none."""
    read = RankComparison(2, steps=50, own_ns=(10, 20))
    monkeypatch.setattr(monitor, "read_ranks", lambda *_args, **_options: read)
    assert compare_saved(Path("run"), 2, RankComparison(2, steps=100, own_ns=(10, 0), absent=(1,))) is read
    assert compare_saved(Path("run"), 2, None) is read
