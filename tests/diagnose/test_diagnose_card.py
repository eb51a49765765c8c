"""The card, the what-if table, and the way from a live or a saved run to them."""

import io
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from evidence_builders import MS, evidence_of, found
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import autoprof
from autoprof.base.frame import Phase
from autoprof.base.stats.intervals import Interval
from autoprof.base.summary import Finding, LedgerEntry, Summary
from autoprof.diagnose import diagnose, evidence_of_run, find_rules, inconclusive, judge
from autoprof.reports.card import render_card, verdict_line
from autoprof.reports.panel import render_panel
from autoprof.sinks._base import RunInfo
from autoprof.sinks.console import ConsoleOptions, ConsoleSink
from autoprof.testing import FakeClock, make_frame
from tests.defects.training import four_layers, train

STEP = {"data": 1, "forward": 30, "backward": 60, "optimizer": 4}
SLOW = {**STEP, "data": 100, "step": 200}


def test_the_card_has_verdict_why_and_next() -> None:
    """The first finding, and what to do about it."""
    lines = render_card(diagnose(evidence_of(SLOW, repeat=20)))
    assert lines[0] == "Verdict   [critical] data-wait: data (up to 100.0 ms a step could be saved)"
    assert lines[1] == "Why       each step waits 100.0 ms (50.0 % of the step) for its batch"
    assert lines[2].startswith("Next      no worker process loads the batches")


def test_the_card_of_a_healthy_run_says_that_nothing_stands_out() -> None:
    """It lists the rules that abstained, with the missing signal."""
    lines = render_card(diagnose(evidence_of(STEP, repeat=20)))
    assert lines[0] == "Verdict   nothing stands out"
    text = " ".join(" ".join(lines).split())
    assert "not judged " in text
    assert "comm-exposed (missing: comm spans)" in text


def test_a_run_that_is_mostly_unattributed_is_never_called_healthy() -> None:
    """From 15 % in no span on, the verdict says how much, and what would show it."""
    judged = diagnose(evidence_of(STEP, repeat=20))
    other = (LedgerEntry(None, Phase.OTHER, "unexplained", judged.step_mean_ns // 5),)
    lines = render_card(replace(judged, ledger=other))
    assert lines[0] == "Verdict   unclear: 20.0 % of the step is in no span"
    assert lines[2].startswith("Next      put with autoprof.span(")
    assert verdict_line(replace(judged, ledger=other)) == lines[0].removeprefix("Verdict   ")


def test_a_run_whose_time_in_no_span_scatters_says_so() -> None:
    """A tenth of the steps are ten times longer: the rule's interval is named, and a longer run."""
    judged = diagnose(evidence_of(STEP, repeat=20))
    other = (LedgerEntry(None, Phase.OTHER, "unexplained", judged.step_mean_ns // 5),)
    doubt = inconclusive("unattributed", Interval(0.104, 0.388, 0.671), 0.15, {})
    text = " ".join(" ".join(render_card(replace(judged, ledger=other, findings=(doubt,)))).split())
    assert "Why time in no span: inconclusive: 10.4 % to 67.1 % of the step; the bound is 15.0 %; no rule" in text
    assert "a longer run narrows the interval" in text


def test_the_title_has_the_module_and_its_phase() -> None:
    """A phase that the rule is called by, or that is no phase of a module, is left out."""
    place = "train.py:9 main"
    for rule, name, phase, title in (
        ("hot-module", "VRT/Stage8", Phase.BACKWARD, "hot-module: VRT/Stage8 backward"),
        ("recompute", "VRT/Stage8", Phase.RECOMPUTE, "recompute: VRT/Stage8"),
        ("unattributed", place, Phase.OTHER, f"unattributed: {place}"),
    ):
        found = Finding(rule, "warning", "slow", "look", name=name, phase=phase)
        assert verdict_line(replace(diagnose(evidence_of(STEP, repeat=20)), findings=(found,))) == title


def test_the_card_of_a_short_run_says_that_it_is_too_early() -> None:
    """No verdict, one line."""
    assert render_card(diagnose(evidence_of(SLOW, repeat=3))) == [
        "Verdict   not judged: recorded steps (5 needed, 3 so far)"
    ]


@cache
def healthy() -> Summary:
    return diagnose(evidence_of(STEP, repeat=20))


@given(text=st.text(max_size=200), width=st.integers(80, 200))
def test_the_card_keeps_to_its_width(text: str, width: int) -> None:
    """Whatever a name holds."""
    finding = Finding("data-wait", "warning", text, text, name=text or None, gain_ns=MS)
    summary = replace(healthy(), findings=(finding, finding))
    assert max(map(cell_len, render_card(summary, width=width))) <= width


def test_the_panel_has_one_line_of_verdict() -> None:
    """At 80 columns; none while it is too early."""
    panel = render_panel(diagnose(evidence_of(SLOW, repeat=20)), width=80, top=3, color=False)
    (line,) = [line for line in panel if "verdict" in line]
    assert line == "│ verdict: data-wait: data (up to 100.0 ms a step could be saved)"
    early = render_panel(diagnose(evidence_of(SLOW, repeat=3)), width=80, top=3, color=False)
    assert not [line for line in early if "verdict" in line]


def test_without_a_panel_a_line_is_printed_when_the_verdict_changes() -> None:
    """Not with every line."""
    stream, now = io.StringIO(), iter([SLOW, SLOW, SLOW, STEP, STEP])

    def summary() -> Summary:
        return diagnose(evidence_of(next(now), repeat=20))

    sink = ConsoleSink(ConsoleOptions(every=1), RunInfo(None, 0, stream, clock=count(0, 1000).__next__))
    for step in range(5):
        sink.write(make_frame([], step=step, duration_ns=1))
        if sink.due():
            sink.show(summary(), step)
    sink.close(Summary.empty())
    said = [line for line in stream.getvalue().splitlines() if "verdict" in line]
    assert said == [
        "autoprof | verdict: data-wait: data (up to 100.0 ms a step could be saved)",
        "autoprof | verdict: nothing stands out",
    ]


# What if.


def test_without_inputs_there_is_no_table() -> None:
    """No samples, no optimizer, no checkpointing: nothing is made up."""
    assert diagnose(evidence_of(STEP, repeat=20)).what_if == ()


# From a run to its verdict.


def test_a_saved_run_gets_the_verdict_of_the_live_one(tmp_path: Path) -> None:
    """It is in summary.json and summary.txt, and the records alone lead to the same findings."""
    clock = FakeClock()
    config = {"output": str(tmp_path), "sinks": {"jsonl": {}}, "sample": {"warmup": 3}, "flops": "off"}

    def stall(number: int) -> None:
        clock.advance(2600 * MS if number % 6 == 5 else MS)

    live = train(four_layers(clock), clock, wait_ms=500, in_step=stall, config=config)
    (folder,) = tmp_path.iterdir()
    run = autoprof.read_run(folder)
    assert found(live) == ["data-wait", "unattributed"]
    assert run.summary is not None
    assert run.summary.findings == live.findings
    assert run.summary.what_if == live.what_if
    assert judge(evidence_of_run(run)) == live.findings
    assert "Verdict   [warning] data-wait" in (folder / "summary.txt").read_text(encoding="utf-8")


def test_a_rule_that_fails_loses_the_verdict_not_the_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary is there, and a note says why it has no findings."""

    def broken(_seen: Any) -> None:
        raise ZeroDivisionError("a rule")

    rules = find_rules()
    monkeypatch.setitem(rules, "data-wait", replace(rules["data-wait"], judge=broken))
    clock = FakeClock()
    summary = train(four_layers(clock), clock)
    assert summary.steps > 10
    assert summary.findings == ()
    assert "no verdict after ZeroDivisionError: a rule" in summary.notes


# The reference workload, on a clock whose time is the number of marks: the same on every machine.


@pytest.mark.parametrize(
    ("rule", "name", "phase", "title"),
    [
        ("optimizer", "Optimizer", Phase.OPTIMIZER, "optimizer"),
        ("hot-module", "(backward)", Phase.BACKWARD, "hot-module: (backward)"),
        ("comm-exposed", "Comm/DDP", Phase.COMM, "comm-exposed: Comm/DDP"),
        ("hot-module", "layers.3", Phase.BACKWARD, "hot-module: layers.3 backward"),
    ],
)
def test_the_verdict_says_each_word_once(rule: str, name: str, phase: Phase, title: str) -> None:
    """Neither the rule's name nor the phase is repeated."""
    finding = Finding(rule, "warning", "why", "next", name, phase)
    assert verdict_line(replace(Summary.empty(), findings=(finding,))) == title
