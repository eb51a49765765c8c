"""Deep captures during a run: of chosen steps, and on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deep_builders import TARGETS, Program, ranges

import autoprof
from autoprof.config import Deep
from autoprof.errors import ConfigError
from autoprof.session.flight.scheduled import ScheduledCaptures
from autoprof.sinks import parse_config


def run(program: Program, deep: dict[str, Any], steps: int, **config: Any) -> autoprof.Session:
    """Train under a session of this configuration, and close it."""
    settings = {"sinks": {}, "flops": "off", "sample": {"budget": None, "warmup": 0}, "deep": deep, **TARGETS, **config}
    with autoprof.instrument(program.model, settings, optimizer=program.optimizer) as session:
        for _ in range(steps):
            program.step()
            session.step()
    return session


def files(session: autoprof.Session) -> list[str]:
    assert session.folder is not None
    return sorted(path.name for path in (session.folder / "rank0").iterdir())


def test_the_steps_asked_for_are_captured() -> None:
    """First and last included; the files carry steps and rank, and lie in the folder of the run's rank."""
    session = run(Program(), {"steps": [3, 4]}, 6)
    assert files(session) == ["steps3-4_rank0_tables.txt", "steps3-4_rank0_trace.json"]
    assert session.folder is not None
    names = ranges(session.folder / "rank0" / "steps3-4_rank0_trace.json")
    assert [name for name in names if name.startswith("ProfilerStep#")] == ["ProfilerStep#3", "ProfilerStep#4"]
    assert [names.count(name) for name in ("Block0", "Block1/FFN")] == [2, 2]


def test_its_steps_are_recorded_whatever_the_sampling_says() -> None:
    """Nothing else would be but each hundredth."""
    session = run(Program(), {"steps": [6, 7]}, 10, sample={"every": 100, "budget": None, "warmup": 0})
    summary = session.summary()
    assert "steps6-7_rank0_trace.json" in files(session)
    assert summary.steps + summary.warmup_steps == 4  # the first, the two, the one after
    assert summary.unsampled_steps == 6


def test_a_captured_step_and_the_one_after_it_are_excluded() -> None:
    """They were asked for: neither the statistics nor the budget count them."""
    window = ScheduledCaptures(
        Deep(steps=(2,)), Path("out"), 0, targets=(), reserve=lambda first, count: None, warn=lambda note: None
    )
    window.begin()
    assert [step for step in (1, 2, 3, 4) if window.step_begins(step)] == [2, 3]
    window.close()


def test_without_step_calls_a_step_begins_with_the_forward() -> None:
    """``step: auto``: the first forward of the window is in its trace."""
    program = Program()
    settings = {"sinks": {}, "sample": {"budget": None}, "deep": {"steps": [2, 2]}, **TARGETS}
    with autoprof.instrument(program.model, settings, optimizer=program.optimizer) as session:
        for _ in range(4):
            program.step()
    assert session.folder is not None
    names = ranges(session.folder / "rank0" / "step2_rank0_trace.json")
    assert names.count("Block0") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("deep: {}", "deep.steps: the key is missing"),
        ("deep: {steps: [5, 3]}", "[5, 3] is not a first and a last step; allowed: two ascending numbers"),
        ("deep: {steps: [1, 900]}", "at most 100 steps"),
        ("deep: {steps: [0, 3]}", "0 is a number; allowed: greater than or equal to 1"),
        ("deep: {steps: [1, 2, 3]}", "deep.steps"),
        ("deep: {steps: ['a']}", "'a' is text; allowed: a valid integer"),
        ("deep: {steps: [1], activities: [gpu]}", "deep.activities: the key is unknown"),
    ],
)
def test_wrong_captures_are_errors_of_the_configuration(text: str, message: str) -> None:
    """With the line, the key, and what is allowed."""
    with pytest.raises(ConfigError) as raised:
        parse_config(text)
    assert message in str(raised.value)
