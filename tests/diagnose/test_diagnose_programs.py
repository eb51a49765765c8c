"""Every rule that judges finds its defect in a real training, and is silent on the healthy twin."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from evidence_builders import finding_of, found

from autoprof._reports.explain import MAX_BYTES, encode, explain_run, json_schema
from autoprof._storage.runs import RunFolder, read_run
from autoprof.cli import main
from autoprof.cli.rules import ABSTAINS, FOUND, SILENT, VERDICT, DefectRun, render_rules
from autoprof.demo.rule_defects import defects_of
from autoprof.diagnose import Defect, Rule, find_rules
from autoprof.summary import Summary

DEFECTS = [(rule, defect) for rule in find_rules().values() for defect in defects_of(rule)]
EXACT = [(rule, defect) for rule, defect in DEFECTS if defect.setting != "real clock"]
REAL = [(rule, defect) for rule, defect in DEFECTS if defect.setting == "real clock"]
SIGNS = {VERDICT, FOUND, SILENT, ABSTAINS}


def names_of(defects: list[tuple[Rule, Defect]]) -> list[str]:
    return [defect.name for _, defect in defects]


def defect_of(rule: str, name: str) -> Defect:
    return next(defect for defect in defects_of(find_rules()[rule]) if defect.name == name)


@cache
def run(defect: Defect, broken: bool) -> Summary:
    """Train once for all tests that only look at the summary."""
    return defect.train(broken)


@pytest.mark.parametrize(("rule", "defect"), EXACT, ids=names_of(EXACT))
def test_a_defect_is_the_verdict(rule: Rule, defect: Defect) -> None:
    """The finding of the defect's rule comes first."""
    assert found(run(defect, True))[0] == rule.name


@pytest.mark.parametrize("defect", [defect for _, defect in EXACT], ids=names_of(EXACT))
def test_the_healthy_twin_has_no_finding(defect: Defect) -> None:
    """No rule finds anything."""
    assert found(run(defect, False)) == []


@pytest.mark.parametrize(("rule", "defect"), REAL, ids=names_of(REAL))
def test_a_defect_of_the_process_is_found_and_its_twin_is_not(rule: Rule, defect: Defect) -> None:
    """On the real clock the machine may add a finding of its own, so only this rule is checked."""
    assert rule.name in found(run(defect, True))
    assert rule.name not in found(run(defect, False))


@pytest.mark.parametrize(("rule", "defect"), DEFECTS, ids=names_of(DEFECTS))
def test_the_explanation_of_a_defect_is_short_and_by_its_schema(rule: Rule, defect: Defect, tmp_path: Path) -> None:
    """At most 4 kB, with the defect's rule among the causes, each with an experiment in the schema's words."""
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    folder = RunFolder.create(tmp_path)
    folder.write_summary(run(defect, True), [])
    folder.finish("closed")
    text = encode(explain_run(read_run(folder.path)))
    explained = json.loads(text)
    jsonschema.validate(explained, json_schema())
    assert len(text.encode()) < MAX_BYTES
    assert rule.name in [one["rule"] for one in explained["causes"]]


def test_a_collection_is_named_as_the_cause() -> None:
    """The garbage collector caused the long steps."""
    finding = finding_of(run(defect_of("jitter", "explicit garbage collections"), True), "jitter")
    assert finding is not None
    assert finding.name == "garbage collection"


def test_a_stall_is_attributed_to_its_span() -> None:
    """The cause of long steps is the span that they spend their excess in."""
    finding = finding_of(run(defect_of("jitter", "a snapshot every sixth step"), True), "jitter")
    assert finding is not None
    assert finding.name == "Snapshot"


def test_every_rule_has_a_defect() -> None:
    """No rule is tested only with evidence made by hand."""
    assert all(defects_of(rule) for rule in find_rules().values())


def test_the_table_shows_verdicts_and_abstentions() -> None:
    """One line for each defect, one for each rule."""
    rule, defect = EXACT[0]
    lines = render_rules([DefectRun(rule, defect, run(defect, True), run(defect, False))])
    assert lines[1].split() == ["1", "slow", "loader", "data-wait", "500.0", "ms", "nothing"]
    assert "data-wait           V" in lines
    assert "sync-call           ?" in lines
    assert "optimizer           ." in lines
    assert max(map(len, lines)) <= 110


def test_the_command_fails_when_a_verdict_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A defect that is not found gives exit status 1, and the JSON has the findings instead."""
    rules, defect = find_rules(), EXACT[0][1]

    def never_broken(_broken: bool) -> Summary:
        return run(defect, False)

    wrong = Rule("data-wait", rules["data-wait"].judge, defects=(Defect("none", never_broken),))
    monkeypatch.setitem(rules, "data-wait", wrong)
    assert main(["rules", "data-wait", "--json"]) == 1
    (record,) = json.loads(capsys.readouterr().out)
    assert record["rule"] == "data-wait"
    assert all(finding["severity"] == "info" for finding in record["defect"])
