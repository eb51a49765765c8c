"""``check()`` of a step and of a summary: each law that is broken is a sentence, and a saved run is checked by them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import autoprof
from autoprof.base.frame import LOGGED_LANE, Phase, Span
from autoprof.base.summary import Finding, LedgerEntry, Summary
from autoprof.frontends.cli import main
from autoprof.testing import make_frame


def span(name: str, start: int, ns: int, parent: int | None = None, **fields: Any) -> Span:
    return Span(name, name, Phase.FORWARD, parent, start, ns, **fields)


def on_device(name: str, start: int, ns: int, parent: int | None = None, **fields: Any) -> Span:
    return span(name, 0, 0, parent, device_start_ns=start, device_ns=ns, **{"host_bound_ns": 0, **fields})


OUTER = span("a", 10, 50)


@pytest.mark.parametrize(
    ("spans", "law"),
    [
        ([OUTER, span("b", 5, 10, 0)], "b forward: it begins before its parent"),
        ([OUTER, span("b", 20, 60, 0)], "b forward: it ends after its parent"),
        ([OUTER, span("b", 20, 90, 0)], "b forward: it ends after the step"),
        ([OUTER, span("b", 30, 40)], "b forward: it begins before the span beside it ends"),
        ([OUTER, span("b", 20, 10, 0, lane=1)], "b forward: it is on another lane than its parent"),
        ([OUTER, span("b", 20, 10, 0, lane=LOGGED_LANE)], "b forward: it has a parent, but no place in the step"),
        ([span("a", 20, -5)], "a forward: its time is negative"),
        ([span("a", -20, 50)], "a forward: it begins before the step"),
        ([span("b", 20, 10, 1), span("a", 10, 50)], "b forward: it comes before its parent"),
        ([OUTER, span("b", 10, 40, 0), span("c", 10, 40, 0)], "a forward: the spans in it take longer than itself"),
        ([span("a", 0, 70), span("b", 0, 70)], "step 1: its phases take longer than itself"),
    ],
)
def test_a_step_that_does_not_add_up_breaks_a_law(spans: list[Span], law: str) -> None:
    assert law in make_frame(spans, duration_ns=100).check()


@pytest.mark.parametrize(
    ("spans", "law"),
    [
        ([on_device("a", 10, 50), on_device("b", 20, 60, 0)], "b forward: it ends after its parent on the device"),
        ([on_device("a", 60, 50)], "a forward: it ends after the step on the device"),
        ([on_device("a", 0, 50, host_bound_ns=51)], "a forward: the device waits for longer than it takes"),
    ],
)
def test_a_device_has_the_same_laws(spans: list[Span], law: str) -> None:
    assert law in make_frame(spans, duration_ns=100, device_duration_ns=100).check()


def test_a_step_that_adds_up_breaks_none() -> None:
    """Threads run beside one another; a duration that was logged has no place."""
    spans = [OUTER, span("b", 20, 10, 0), span("c", 15, 60, lane=1), span("d", 0, 900, lane=LOGGED_LANE)]
    assert make_frame(spans, duration_ns=100).check() == []


SOUND = Summary(
    steps=2,
    total_step_ns=200,
    step_mean_ns=100,
    phases={Phase.FORWARD: 120, Phase.OTHER: 80},
    ledger=(LedgerEntry("a", Phase.FORWARD, "arithmetic", 60), LedgerEntry(None, Phase.OTHER, "unexplained", 40)),
)


def finding(gain_ns: int) -> Finding:
    return Finding("jitter", "warning", "why", "next", gain_ns=gain_ns)


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({}, None),
        ({"phases": {Phase.OTHER: 190}}, "the phases do not make the recorded steps"),
        ({"ledger": SOUND.ledger[:1]}, "the owners of the ledger do not make the mean step"),
        ({"findings": (finding(60), finding(60))}, "the findings gain more than a step takes"),
    ],
)
def test_statistics_that_do_not_add_up_break_a_law(changes: dict[str, Any], law: str | None) -> None:
    assert replace(SOUND, **changes).check() == ([] if law is None else [law])


def test_a_saved_run_is_checked_step_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof check RUN`` says how many steps it has read."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    config = {"output": str(tmp_path), "sample": {"warmup": 0, "budget": None}, "step": "manual"}
    with autoprof.instrument(model, config) as session:
        for _ in range(7):
            model(torch.ones(2, 4)).sum().backward()
            session.step()
    capsys.readouterr()
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(": ok, 7 recorded steps of 1 rank\n")


def test_a_run_without_records_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(4, 2)
    with autoprof.instrument(model, {"output": str(tmp_path), "sinks": {"log": {}}}):
        model(torch.ones(2, 4))
    capsys.readouterr()
    assert main(["check", str(tmp_path)]) == 2
    assert "has no recorded steps to check" in capsys.readouterr().err


def test_a_run_whose_times_do_not_add_up_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each law with its rank and step; the exit status is 1."""
    model = nn.Linear(4, 2)
    with autoprof.instrument(model, {"output": str(tmp_path), "sample": {"warmup": 0, "budget": None}}) as session:
        model(torch.ones(2, 4))
        session.step()
    monkeypatch.setattr(autoprof.StepFrame, "check", lambda frame: ["Linear forward: it ends after the step"])
    capsys.readouterr()
    assert main(["check", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "rank 0, step 1: Linear forward: it ends after the step\n"
