"""Every rule that judges finds its defect in a real training, and is silent on the healthy twin."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch.distributed as dist
from evidence_builders import finding_of, found

from autoprof.cli import main
from autoprof.cli.rules import ABSTAINS, FOUND, SILENT, VERDICT, render_rules
from autoprof.demo.defects import PROGRAMS, Program
from autoprof.diagnose import RULES
from autoprof.summary import Summary

EXACT = [program for program in PROGRAMS if not program.on_machine]
REAL = [program for program in PROGRAMS if program.on_machine]
SIGNS = {VERDICT, FOUND, SILENT, ABSTAINS}
PAGE = Path(__file__).parents[2] / "docs" / "verdict.md"


def name_of(program: Program) -> str:
    return program.name


@cache
def run(program: Program, broken: bool) -> Summary:
    """Train once for all tests that only look."""
    return program.run(broken)


@pytest.mark.parametrize("program", EXACT, ids=name_of)
def test_a_defect_is_the_verdict(program: Program) -> None:
    """The rule made for it comes first."""
    assert found(run(program, True))[0] == program.rule


@pytest.mark.parametrize("program", EXACT, ids=name_of)
def test_the_healthy_twin_is_accused_of_nothing(program: Program) -> None:
    """No rule finds anything."""
    assert found(run(program, False)) == []


@pytest.mark.parametrize("program", EXACT, ids=name_of)
def test_two_runs_get_one_verdict(program: Program) -> None:
    """The same program gives the same findings, in the same order."""
    first, again = run(program, True), program.run(True)
    assert found(first) == found(again)
    assert [finding.name for finding in first.findings[:1]] == [finding.name for finding in again.findings[:1]]


@pytest.mark.parametrize("program", REAL, ids=name_of)
def test_a_defect_of_the_process_is_found_and_its_twin_is_not(program: Program) -> None:
    """On the real clock the machine may add a finding of its own, so only the rule in question is looked at."""
    assert program.rule in found(run(program, True))
    assert program.rule not in found(run(program, False))


def test_a_collection_is_named_as_the_cause() -> None:
    """The garbage collector is what made the long steps long."""
    program = next(one for one in REAL if one.rule == "jitter")
    finding = finding_of(run(program, True), "jitter")
    assert finding is not None
    assert finding.name == "garbage collection"


def test_a_stall_is_charged_to_its_span() -> None:
    """The cause of long steps is the span that they spend their excess in."""
    program = next(one for one in EXACT if one.rule == "jitter")
    finding = finding_of(run(program, True), "jitter")
    assert finding is not None
    assert finding.name == "Snapshot"


def test_every_rule_is_proved_by_a_program() -> None:
    """No rule was only ever held against evidence made by hand."""
    assert {program.rule for program in PROGRAMS} == set(RULES)


def test_the_link_of_a_program_is_no_group_of_torchs() -> None:
    """Nothing of it is left behind: nobody else's collective runs over it."""
    run(next(program for program in EXACT if program.rule == "comm-exposed"), True)
    assert not dist.is_initialized()
    assert not dist.distributed_c10d._world.pg_map


def test_the_table_shows_verdicts_and_abstentions() -> None:
    """One line a program, one a rule; at 80 columns."""
    program = EXACT[0]
    lines = render_rules([(program, run(program, True), run(program, False))])
    assert lines[1].split() == ["1", "slow", "loader", "data-wait", "500.0", "ms", "nothing"]
    assert "data-wait           V" in lines
    assert "sync-call           ?" in lines
    assert "optimizer           ." in lines
    assert max(map(len, lines)) <= 110


def test_the_page_has_the_table_that_the_command_prints() -> None:
    """Verdict by verdict and cell by cell, but for what depends on how long the trainings really took."""
    page = PAGE.read_text(encoding="utf-8").splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in page if line[:1].islower() and {*line.split()[1:]} <= SIGNS}
    assert set(cells) >= set(RULES)
    for at, program in enumerate(PROGRAMS):
        assert [line for line in page if line.startswith(f"{at + 1:>3} {program.name:<33}{program.rule} ")]
        if program in REAL:
            continue
        for rule in set(RULES) - {"memory-growth", "overhead"}:
            finding = finding_of(run(program, True), rule)
            allowed = {SILENT} if finding is None else {ABSTAINS} if finding.severity == "info" else {VERDICT, FOUND}
            assert cells[rule][at] in allowed, (program.name, rule)


def test_the_command_fails_when_a_verdict_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A defect that is not found is an exit status of 1, and the JSON says what was found instead."""

    def never_broken(_broken: bool) -> Summary:
        return run(EXACT[0], False)

    monkeypatch.setattr("autoprof.demo.defects.PROGRAMS", (Program("none", "data-wait", never_broken),))
    assert main(["rules", "--json"]) == 1
    (record,) = json.loads(capsys.readouterr().out)
    assert record["rule"] == "data-wait"
    assert all(finding["severity"] == "info" for finding in record["defect"])
