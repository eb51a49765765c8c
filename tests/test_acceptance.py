"""The comparison of programs with the report: the clock, the judge, the table, and one program in a process."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from autoprof import Finding, Summary
from autoprof.diagnose._contention import QUIET
from autoprof.testing import make_frame
from tests.acceptance import clock as clock_module
from tests.acceptance.__main__ import choose, main, parse
from tests.acceptance.clock import CLOCK, Clock, ProgramStep
from tests.acceptance.judge import Check, Judge, Verdict
from tests.acceptance.registry import SECTIONS, Program, program, programs
from tests.acceptance.report import render_page, render_result, render_totals, render_verdicts
from tests.acceptance.run import Result, run_one

OUTCOMES: tuple[tuple[str, Verdict], ...] = (("defects", "right"), ("defects", "uncertain"), ("healthy", "right"))


class FixedSession:
    """A closed session with a summary made by the test."""

    def __init__(self, **values: object) -> None:
        self._summary = replace(Summary.empty(), **values)

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


def test_a_forward_inside_excluded_time_is_excluded(now: list[int]) -> None:
    """A phase inside validation belongs to validation, and to no step."""
    clock = Clock()
    with clock.phase("excluded"), clock.phase("forward"):
        now[0] += 7
    now[0] += 2
    clock.step()
    assert (clock.steps[0].phases, clock.steps[0].step_ns) == ({"excluded": 7}, 2)


@pytest.mark.parametrize(("reported", "verdict"), [(10.4e6, "right"), (10.6e6, "wrong"), (None, "wrong")])
def test_a_time_is_right_within_five_percent(judge: Judge, reported: float | None, verdict: str) -> None:
    """10 ms are right up to 10.5 ms, and never when they are absent."""
    assert judge.time("forward", 10e6, reported).checks[0].verdict == verdict


def test_a_wrong_time_is_uncertain_only_where_the_report_says_so(judge: Judge) -> None:
    """Without the finding about the busy machine the same figure is wrong."""
    finding = Finding("busy-machine", "info", "others hold the processors", "compare on a quiet machine")
    busy = Judge(FixedSession(findings=(finding,)))
    verdicts = [one.time("forward", 10e6, 20e6).checks[0].verdict for one in (judge, busy)]
    assert verdicts == ["wrong", "uncertain"]


def test_a_wrong_number_of_steps_is_never_uncertain(judge: Judge) -> None:
    """A busy machine is no reason to find other steps."""
    finding = Finding("busy-machine", "info", "others hold the processors", "compare on a quiet machine")
    assert Judge(FixedSession(findings=(finding,))).steps(60).checks[0].verdict == "wrong"


def test_a_missing_finding_is_uncertain_only_where_its_rule_abstains(judge: Judge) -> None:
    """A rule that says nothing about a busy machine has overlooked the defect."""
    busy = Finding("busy-machine", "warning", "others hold the processors", "compare on a quiet machine")
    abstaining = Finding("optimizer", "info", "missing", "measure again", evidence={"missing": QUIET})
    sessions = [FixedSession(findings=(busy,)), FixedSession(findings=(busy, abstaining))]
    assert [Judge(one).finds("optimizer").checks[0].verdict for one in sessions] == ["wrong", "uncertain"]
    assert [Judge(one).names("it", "it is", "optimizer").checks[0].verdict for one in sessions] == [
        "wrong",
        "uncertain",
    ]


def test_throughput_is_compared_over_the_time_that_the_report_covers(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow steps of the warm-up, and those after the last recorded step, are in neither figure."""
    times = [9, 9, 1, 1, 1, 1, 5]
    ends = list(accumulate(times))
    steps = [ProgramStep(end - ns, end, ns) for ns, end in zip(times, ends, strict=True)]
    monkeypatch.setattr(CLOCK, "steps", steps)
    frames = [
        make_frame([], duration_ns=times[at], start_unix_ns=ends[at] - times[at], warmup=at < 2)
        for at in (0, 1, 2, 4, 5)
    ]
    monkeypatch.setattr(Judge, "_frames", tuple(frames))
    assert Judge(FixedSession(throughput=8e9)).throughput(8).checks[0].verdict == "right"


def test_an_accusation_is_seen(judge: Judge) -> None:
    """A healthy program must have no finding; an abstention is none."""
    accusing = Finding("jitter", "warning", "long steps", "look")
    abstaining = Finding("data-wait", "info", "no data", "none", evidence={"missing": "data spans"})
    verdicts = [Judge(FixedSession(findings=(f,))).silent().checks[0].verdict for f in (accusing, abstaining)]
    assert verdicts == ["wrong", "right"]


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [(("data-wait",), "right"), (("data-wait", "jitter"), "wrong"), (("jitter",), "wrong"), ((), "wrong")],
)
def test_a_defect_is_named_by_the_first_finding_alone(judge: Judge, rules: tuple[str, ...], verdict: str) -> None:
    """Another cause beside the right one, another cause alone, and no finding are wrong."""
    findings = tuple(Finding(rule, "warning", "data.py:12 augment", "look") for rule in rules)
    assert Judge(FixedSession(findings=findings)).verdict("data-wait", "augment").checks[0].verdict == verdict


def test_a_missed_defect_is_uncertain_on_a_busy_machine_but_never_a_wrong_cause(judge: Judge) -> None:
    """A busy machine is a reason to abstain, not to accuse."""
    busy = Finding("busy-machine", "warning", "others hold the processors", "compare on a quiet machine")
    wrong = Finding("jitter", "warning", "long steps", "look")
    verdicts = [
        Judge(FixedSession(findings=found)).verdict("data-wait").checks[0].verdict for found in ((busy,), (busy, wrong))
    ]
    assert verdicts == ["uncertain", "wrong"]


def test_the_totals_count_named_defects_and_healthy_programs() -> None:
    """One line for the page: how many were named, and how many were not accused."""
    results = [
        Result(
            Program("a", section, "a program", lambda: Judge(FixedSession())),
            (Check("verdict", "", "", verdict),),
            None,
            1.0,
            "",
        )
        for section, verdict in OUTCOMES
    ]
    assert render_verdicts(results) == (
        "defects: 1 of 2 named rightly (1 uncertain: the report calls the machine busy); "
        "healthy: 1 of 1 without an accusation"
    )


def test_every_section_has_programs() -> None:
    """The table covers every section, and each sentence is written once."""
    entries = programs().values()
    assert {entry.section for entry in entries} <= set(SECTIONS)
    assert len({entry.sentence for entry in entries}) == len(entries)


def test_an_unknown_section_is_an_error() -> None:
    """A misspelt section names the allowed ones."""
    with pytest.raises(ValueError, match="allowed: recompute"):
        program("recomputation", "a sentence")


def test_a_pattern_chooses_programs_by_name() -> None:
    """``--only`` looks in names and sentences."""
    assert [entry.name for entry in choose(parse(["--only", "^plain_loop "]))] == ["plain_loop"]


def test_a_pattern_without_a_program_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 2 and a sentence."""
    assert main(["--only", "no such program"]) == 2
    assert "--list" in capsys.readouterr().out


def test_a_program_runs_in_a_process_of_its_own() -> None:
    """A program's comparison comes back from its process, with a verdict on each figure."""
    result = run_one(programs()["inference_only"])
    assert result.error is None
    assert [check.subject for check in result.checks] == ["says"]


def test_the_table_and_the_page_show_a_wrong_figure() -> None:
    """A wrong figure is shown with its truth, its reported value and the difference."""
    entry = Program("loop", "steps", "a loop", lambda: Judge(FixedSession()))
    result = Result(entry, (Check("steps", "60", "120", "wrong", "+60"),), None, 1.0, "")
    machine = {"date": "today", "cpu": "a processor", "cores": 2, "python": "3.11", "torch": "2.13"}
    page = render_page([result], [], machine, busy=False)
    assert "| a loop | steps: 60 → 120 | wrong: steps +60 |" in page
    assert "steps: 120, truth 60 (+60)" in render_result(result)
    assert "steps               1      0          0      1" in render_totals([result], [])


def test_a_program_that_died_is_wrong() -> None:
    """A program without a comparison is wrong, with the reason."""
    entry = Program("loop", "steps", "a loop", lambda: Judge(FixedSession()))
    assert Result(entry, (), "the process died", 1.0, "").verdict == "wrong"
