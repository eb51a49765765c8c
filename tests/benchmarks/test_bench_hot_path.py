"""The comparison of the default with a record of every module finds what does not agree, and says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from autoprof._session.builder import open_session
from autoprof.testing import FakeClock, ListSink
from benchmarks.hot_path.__main__ import main
from benchmarks.hot_path.agreement import Agreement, Record, close
from benchmarks.hot_path.page import render, render_page
from benchmarks.hot_path.worker import to_record

MACHINE = {"cpu": "a processor", "threads": 1, "torch": "2"}


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

    def test_small_differences_are_none(self) -> None:
        """Two points of the step, or a tenth of the share."""
        assert close(0.02, 0.039)
        assert close(0.50, 0.455)
        assert not close(0.50, 0.44)
        assert compared(record(a=0.31, b=0.30, c=0.2), record(a=0.30, b=0.31, c=0.2)) == []

    def test_a_difference_by_chance_is_none(self) -> None:
        """Within two standard errors of it."""
        assert compared(record(error=0.02, a=0.3), record(error=0.02, a=0.25)) == []
        assert len(compared(record(error=0.01, a=0.3), record(error=0.01, a=0.25))) == 1

    def test_a_difference_between_the_full_records_is_none(self) -> None:
        """The machine drifts: the default was measured between them."""
        full = record(a=0.30).averaged_with(record(a=0.40))
        assert full.share("a") == pytest.approx(0.35)
        assert full.recorded == 180
        assert compared(record(a=0.44), full) == []
        assert len(compared(record(a=0.46), full)) == 1

    def test_a_long_module_without_a_row(self) -> None:
        """The default stopped above it: a sentence each for the missing row and the one that holds its time."""
        assert compared(record(a=0.4, block=0.5), record(a=0.4, inner=0.45, block=0.05)) == [
            "inner, 45.0% of the step, has no row",
            "block: 50.0% by default, 5.0% in the full record",
            "a is longer than block in the full record",
        ]

    def test_a_module_that_is_long_by_chance_needs_no_row(self) -> None:
        """One stalled step makes a short module long, with a large standard error."""
        full = record(error=0.02, a=0.4, b=0.3, stalled=0.05, c=0.04)
        assert compared(record(error=0.02, a=0.4, b=0.3, c=0.04), full) == []

    def test_modules_without_a_row_count_for_the_row_around_them(self) -> None:
        """Small ones have none in the default."""
        full = record(**{"h.*/attn": 0.06, "h.*/attn/softmax": 0.03, "h.*/attn/drop": 0.01, "head": 0.5, "b": 0.2})
        assert compared(record(**{"h.*/attn": 0.10, "head": 0.5, "b": 0.2}), full) == []

    def test_another_order(self) -> None:
        """Only where the shares of the full record differ."""
        assert compared(record(a=0.3, b=0.29, c=0.1), record(a=0.27, b=0.31, c=0.1)) == [
            "b is longer than a in the full record"
        ]


def test_the_page_shows_both_sides_and_each_problem() -> None:
    """A table of the models, then the longest rows of each; what did not run is said."""
    good = Agreement("Good", 200, record(a=0.4, b=0.3), record(a=0.41, b=0.3))
    bad = Agreement("Bad", 200, record(a=0.4), record(inner=0.4))
    page = render_page([good, bad], ["Third (x is not installed)"], MACHINE)
    assert "## 1 of 2 models agree" in page
    assert "| Good | 5.00 ms | 200 | 90 | 2 | 2 | yes |" in page
    assert "- Bad: `inner, 40.0% of the step, has no row`" in page
    assert "| `a` | 40.0% | 20.0%, 20.0% | `a` | 41.0% | 20.5%, 20.5% |" in page
    assert "- Not run: Third (x is not installed)" in page
    assert render([good, bad], []).splitlines()[:3] == [
        "1 of 2 models agree",
        "agrees     Good",
        "DISAGREES  Bad",
    ]


def test_a_record_has_the_shares_of_self_time() -> None:
    """Of the time of the steps, by name and phase."""
    clock, sink = FakeClock(), ListSink()

    class Timed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            clock.advance(3_000_000)
            return x

    model = torch.nn.Sequential(Timed())
    config = {"targets": [{"match": ".*"}], "sinks": {}, "sample": {"warmup": 0, "budget": None}, "step": "manual"}
    with open_session(model, config, optimizer=None, sinks=[sink], clock=clock) as session:
        for _ in range(3):
            model(torch.ones(1))
            clock.advance(1_000_000)
            session.step()
    found = to_record(session.summary(), sink.frames)
    assert found["shares"]["0"] == {"forward": 0.75}
    assert found["errors"]["0"] == 0.0
    assert found["recorded"] == session.summary().steps


@pytest.mark.slow
def test_the_command_compares_in_a_process_of_its_own(tmp_path: Path) -> None:
    """A few steps of the smallest model; the status says whether it agrees."""
    threads, page = torch.get_num_threads(), tmp_path / "hot_path.md"
    try:
        status = main(["--only", "nanogpt", "--steps", "4", "--output", str(tmp_path), "--page", str(page)])
    finally:
        torch.set_num_threads(threads)
    (result,) = json.loads((tmp_path / "hot_path.json").read_text())["results"]
    assert result["full"]["recorded"] > 0
    assert status == bool(result["problems"])
    assert "nanoGPT-like" in page.read_text()
