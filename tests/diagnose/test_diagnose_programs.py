"""Every rule that judges finds its defect in a real training, and is silent on the healthy twin."""

import json
from functools import cache
from pathlib import Path

import pytest
from evidence_builders import finding_of, found

from autoprof.base.storage.runs import RunFolder, read_run
from autoprof.base.summary import Summary
from autoprof.diagnose import find_rules
from autoprof.reports.explain import MAX_BYTES, encode, explain_run, json_schema
from tests.defects import DEFECTS, Defect


def name_of(defect: Defect) -> str:
    return defect.name


@cache
def run(defect: Defect, broken: bool) -> Summary:
    """Train once for all tests that only look at the summary."""
    return defect.train(broken)


@pytest.mark.parametrize("defect", DEFECTS, ids=name_of)
def test_a_defect_is_the_verdict(defect: Defect) -> None:
    """The finding of the defect's rule comes first."""
    assert found(run(defect, True))[0] == defect.rule


@pytest.mark.parametrize("defect", DEFECTS, ids=name_of)
def test_the_healthy_twin_has_no_finding(defect: Defect) -> None:
    """No rule finds anything."""
    assert found(run(defect, False)) == []


@pytest.mark.parametrize("defect", DEFECTS, ids=name_of)
def test_the_explanation_of_a_defect_is_short_and_by_its_schema(defect: Defect, tmp_path: Path) -> None:
    """At most 4 kB, with the defect's rule among the causes, each with an experiment in the schema's words."""
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")
    folder = RunFolder.create(tmp_path)
    folder.write_summary(run(defect, True), [])
    folder.finish("closed")
    text = encode(explain_run(read_run(folder.path)))
    explained = json.loads(text)
    jsonschema.validate(explained, json_schema())
    assert len(text.encode()) < MAX_BYTES
    assert defect.rule in [one["rule"] for one in explained["causes"]]


@pytest.mark.parametrize(
    ("defect", "rule", "cause"),
    [
        ("a snapshot every sixth step", "hot-module", "Snapshot"),
        ("explicit garbage collections", "jitter", "garbage collection"),
    ],
)
def test_long_steps_are_attributed_to_their_cause(defect: str, rule: str, cause: str) -> None:
    """The span that they spend their excess in, or the garbage collector."""
    finding = finding_of(run(next(one for one in DEFECTS if one.name == defect), True), rule)
    assert finding.name == cause


def test_every_rule_has_a_defect() -> None:
    """No rule is tested only with evidence made by hand."""
    assert {defect.rule for defect in DEFECTS} == set(find_rules())
