"""Deep captures during a run: of chosen steps, once when the verdict stands out, and on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deep_builders import TARGETS, Program, ranges

import autoprof
from autoprof._flight.scheduled import ScheduledCaptures
from autoprof.config import Deep
from autoprof.errors import ConfigError
from autoprof.sinks import parse_config
from autoprof.summary import Finding, Summary


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
    window = make_window(Deep(steps=(2,)))
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


FOUND = Finding(rule="data-wait", severity="warning", why="w", next="n")
QUIET = Finding(rule="data-wait", severity="info", why="w", next="n", evidence={"missing": "data spans"})


def summary_of(*findings: Finding) -> Summary:
    return replace(Summary.empty(()), findings=findings)


def make_window(
    wanted: Deep | None, reserved: Any = None, summary: Any = None, notes: list[str] | None = None, **options: Any
) -> ScheduledCaptures:
    window = ScheduledCaptures(
        wanted, Path("out"), 0, targets=(), summary=summary or summary_of,
        reserve=lambda first, count: None if reserved is None else reserved.append((first, count)),
        warn=(notes if notes is not None else []).append, **options,
    )  # fmt: skip
    window.begin()
    return window


def test_a_verdict_that_stands_out_is_captured_once() -> None:
    """The next three steps; another verdict later is not."""
    findings: list[Finding] = [QUIET]
    reserved, notes = list[tuple[int, int]](), list[str]()
    window = make_window(Deep(on="verdict"), reserved, lambda: summary_of(*findings), notes)
    apart = [step for step in range(1, 41) if window.step_begins(step)]
    assert (apart, reserved) == ([], [])
    findings[:] = [FOUND]
    apart = [step for step in range(41, 400) if window.step_begins(step)]
    window.close()
    assert len(reserved) == 1
    ((first, count),) = reserved
    assert (apart, count) == ([first, first + 1, first + 2, first + 3], 4)
    assert notes[0] == f"the verdict is data-wait: a deep capture of steps {first} to {first + 2}"
    assert Path("out", f"steps{first}-{first + 2}_rank0_trace.json").exists()


def test_the_verdict_is_checked_ever_more_rarely() -> None:
    """It costs milliseconds: after 16 recorded steps, 32, 64, …"""
    looked: list[int] = []
    at = [0]

    def summary() -> Summary:
        looked.append(at[0])
        return summary_of(QUIET)

    window = make_window(Deep(on="verdict"), summary=summary)
    for at[0] in range(1, 300):
        window.step_begins(at[0])
    assert looked == [16, 32, 64, 128, 256]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("deep: {}", "deep: it captures nothing; add 'steps' or 'on', or both"),
        ("deep: {steps: [5, 3]}", "[5, 3] is not a first and a last step; allowed: two ascending numbers"),
        ("deep: {steps: [1, 900]}", "at most 100 steps"),
        ("deep: {steps: [0, 3]}", "0 is a number; allowed: greater than or equal to 1"),
        ("deep: {steps: [1, 2, 3]}", "deep.steps"),
        ("deep: {steps: ['a']}", "'a' is text; allowed: a valid integer"),
        ("deep: {on: never}", "'never' is unknown; allowed: verdict"),
        ("deep: {steps: [1], activities: [gpu]}", "deep.activities: the key is unknown"),
    ],
)
def test_wrong_captures_are_errors_of_the_configuration(text: str, message: str) -> None:
    """With the line, the key, and what is allowed."""
    with pytest.raises(ConfigError) as raised:
        parse_config(text)
    assert message in str(raised.value)
