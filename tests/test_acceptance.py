"""The comparison of programs with the report: the clock, the judge, the table, and one program in a process."""

from dataclasses import replace

import pytest

from autoprof import Finding, Summary
from tests.acceptance import clock as clock_module
from tests.acceptance.clock import CLOCK, Clock
from tests.acceptance.judge import Check, Judge
from tests.acceptance.registry import SECTIONS, Program, programs
from tests.acceptance.report import render_page, render_result, render_totals
from tests.acceptance.run import Result, run_one


class FixedSession:
    """A session with a summary made by the test."""

    def __init__(self, **values: object) -> None:
        self._summary = replace(Summary.empty(), **values)

    def close(self) -> None:
        pass

    def summary(self) -> Summary:
        return self._summary


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time that the program's clock reads, in nanoseconds."""
    time = [0]
    monkeypatch.setattr(clock_module, "perf_counter_ns", lambda: time[0])
    return time


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Judge:
    """A judge of a program that has run no step, in an empty folder."""
    monkeypatch.chdir(str(tmp_path))
    CLOCK.start()
    return Judge(FixedSession())


def test_a_phase_inside_another_is_not_counted_twice(now: list[int]) -> None:
    """The recompute in a backward is charged to recompute alone."""
    clock = Clock()
    with clock.phase("backward"):
        now[0] += 5
        with clock.phase("recompute"):
            now[0] += 3
        now[0] += 1
    now[0] += 2
    clock.step()
    (step,) = clock.steps
    assert (step.phases, step.other_ns) == ({"backward": 6, "recompute": 3}, 2)


@pytest.mark.parametrize(("reported", "verdict"), [(10.4e6, "right"), (10.6e6, "wrong"), (None, "wrong")])
def test_a_time_is_right_within_five_percent(judge: Judge, reported: float | None, verdict: str) -> None:
    """10 ms are right up to 10.5 ms, and never when they are absent."""
    assert judge.time("forward", 10e6, reported).checks[0].verdict == verdict


def test_a_wrong_time_is_uncertain_only_where_the_report_says_so(judge: Judge) -> None:
    """Without the condition of the busy machine the same figure is wrong."""
    busy = Judge(FixedSession(conditions=("beside other processes",)))
    verdicts = [one.time("forward", 10e6, 20e6).checks[0].verdict for one in (judge, busy)]
    assert verdicts == ["wrong", "uncertain"]


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [(("data-wait",), "right"), (("data-wait", "jitter"), "wrong"), (("jitter",), "wrong"), ((), "wrong")],
)
def test_a_defect_is_named_by_the_first_finding_alone(judge: Judge, rules: tuple[str, ...], verdict: str) -> None:
    """Another cause beside the right one, another cause alone, and no finding are wrong."""
    findings = tuple(Finding(rule, "warning", "data.py:12 augment", "look") for rule in rules)
    assert Judge(FixedSession(findings=findings)).verdict("data-wait", "augment").checks[0].verdict == verdict


def test_every_section_has_programs() -> None:
    """The table covers every section, and each sentence is written once."""
    entries = programs().values()
    assert {entry.section for entry in entries} <= set(SECTIONS)
    assert len({entry.sentence for entry in entries}) == len(entries)


def test_a_program_runs_in_a_process_of_its_own() -> None:
    """A program's comparison comes back from its process, with a verdict on each figure."""
    result = run_one(programs()["inference_only"])
    assert result.error is None
    assert [check.subject for check in result.checks] == ["says"]


def test_the_table_and_the_page_show_a_wrong_figure() -> None:
    """A wrong figure is shown with its truth, its reported value and the difference."""
    entry = Program("loop", "steps", "a loop", lambda: Judge(FixedSession()))
    result = Result(entry, (Check("steps", "60", "120", "wrong", "+60"),), None, 1.0, "")
    page = render_page([result], [])
    assert "| a loop | steps: 60 → 120 | wrong: steps +60 |" in page
    assert "steps: 120, truth 60 (+60)" in render_result(result)
    assert "steps               1      0          0      1" in render_totals([result], [])
