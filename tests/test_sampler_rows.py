"""Rules of the user are dropped, and recorded again, only with a note."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from autoprof._session import builder
from autoprof._session.row_choice import RuleRows
from autoprof._session.sampler import Sampler
from autoprof._session.sampling import TargetSet
from autoprof._targets import select_targets
from autoprof.frame import FrameRun, Phase, Span, StepFrame
from autoprof.sinks import load_config
from autoprof.testing import FakeClock, ListSink, make_frame, open_session


def model() -> nn.Sequential:
    """Return two blocks, of which one has three layers."""
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))


def rows(*matches: str) -> RuleRows:
    """Return the rows of these rules."""
    made = model()
    selection = select_targets(made, load_config({"targets": [{"match": match} for match in matches]}))
    return RuleRows(selection.targets, lambda targets, number: TargetSet((), tuple(targets), number))


def names(made: RuleRows) -> set[str]:
    """Return the names of the rows that are recorded."""
    return {target.name for target in made.chosen.targets}


def frame(made: RuleRows, **ns: int) -> StepFrame:
    """Return a step of 1,000 ns in which the rows take so long; ``x1_0`` is the row 1/0."""
    lengths = {name.removeprefix("x").replace("_", "/"): length for name, length in ns.items()}
    spans = [Span(name, name, Phase.FORWARD, None, 0, length) for name, length in lengths.items()]
    return make_frame(spans, step=9, duration_ns=1_000, cut=made.chosen.number)


def measured(*matches: str) -> RuleRows:
    """Return the rows of these rules after some steps, in which the layer 1/1 takes least."""
    made = rows(*matches)
    for _ in range(10):
        made.frames(FrameRun.of([frame(made, x0=100, x1=800, x1_0=300, x1_1=20, x1_2=400)]))
    return made


def test_the_row_that_holds_least_time_is_dropped_first_and_it_is_said_why() -> None:
    """Once: the next step has no note."""
    made = measured("0", "1", "1.*")
    assert made.describe_change() is None
    assert made.fit(0.85) == pytest.approx(0.8)
    assert names(made) == {"0", "1", "1/0", "1/2"}
    assert (
        made.describe_change() == "1/1 is not recorded, to keep the budget: these rows hold least time for their cost"
    )
    assert made.describe_change() is None


def test_rows_for_modules_in_no_other_are_never_dropped() -> None:
    """Where they cost too much, every k-th step is recorded: as often as not, so others may cost as much as these."""
    made = measured("0", "1", "1.*")
    assert made.fit(0.4) == pytest.approx(0.4)
    assert names(made) == {"0", "1"}
    assert made.fit(0.5) == 1.0
    whole = measured("0", "1", "1.*")
    assert whole.fit(0.39) == pytest.approx(0.8)
    assert names(whole) == {"0", "1", "1/0", "1/2"}


def test_dropped_rows_come_back_the_longest_first_and_it_is_said() -> None:
    """As many as there is room for."""
    made = measured("0", "1", "1.*")
    made.fit(0.4)
    made.describe_change()
    assert made.fit(1.6) == 1.0
    assert names(made) == {"0", "1", "1/2"}
    assert made.describe_change() == "1/2 is recorded again: there is room in the budget"


class Shrinking(Sampler):
    """A sampler that drops rows after the second step, and takes them back after the fourth."""

    _steps = 0

    def close(self, cost_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int | None = None, gap_ns: int = 0) -> None:
        self._steps += 1
        assert self.rows is not None
        if self._steps in (2, 4):
            self.rows.fit(0.4 if self._steps == 2 else 9.0)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the notes of a run with rules whose inner rows are dropped for two steps."""
    monkeypatch.setattr(builder, "Sampler", lambda *_args: Shrinking(0.01))
    program, sink = model(), ListSink()
    config: dict[str, Any] = {"targets": [{"match": r"\d+(\.\d+)?"}], "sinks": {}, "step": "manual"}
    with open_session(program, {**config, "sample": {"warmup": 0}}, clock=FakeClock(), sinks=[sink]) as session:
        for _ in range(6):
            program(torch.ones(1, 2)).sum().backward()
            session.step()
    seen = [sorted({span.name for span in frame.spans if span.phase is Phase.FORWARD}) for frame in sink.frames]
    every = ["0", "1", "1/0", "1/1", "1/2"]
    assert seen == [every, every, ["0", "1"], ["0", "1"], every, every]
    return list(session.summary().notes)


def test_the_report_says_from_which_step_on_rows_are_dropped(notes: list[str]) -> None:
    """And from which one they are recorded again."""
    assert notes == [
        "from step 3 on, 1/0, 1/1, 1/2 are not recorded, to keep the budget: these rows hold least time for their cost",
        "from step 5 on, 1/0, 1/1, 1/2 are recorded again: there is room in the budget",
    ]
