"""Every rule that judges finds its defect in a real training, and is silent on the healthy twin."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from evidence_builders import finding_of, found
from torch import nn

from autoprof.base.storage.runs import RunFolder, read_run
from autoprof.base.summary import Summary
from autoprof.diagnose import find_rules
from autoprof.reports.explain import MAX_BYTES, encode, explain_run, json_schema
from autoprof.testing import FakeClock, open_session
from tests.defects import DEFECTS, Defect
from tests.fake_memory import FakeAllocator

MS, GIB = 1_000_000, 2**30


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


def test_memory_that_the_program_drops_at_its_end_had_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leak in a function that has returned when the session closes: all of it is free then."""
    clock, allocator, used = FakeClock(), FakeAllocator(80 * GIB, base_bytes=GIB), [GIB]
    monkeypatch.setattr("autoprof.diagnose._diagnosis.heap_bytes", lambda: used[0])
    monkeypatch.setattr("autoprof.diagnose._diagnosis.READ_EVERY_NS", 0)
    model = nn.Linear(4, 4)
    config = {"output": str(tmp_path), "sinks": {"jsonl": {}}}
    with open_session(model, config, clock=clock, memory=allocator) as session:
        for _ in range(40):
            allocator.allocate(GIB // 4)
            used[0] += GIB // 4
            clock.now_ns += MS
            model(torch.randn(2, 4)).sum().backward()
            session.step()
        used[0] = GIB
    facts = json.loads((session.folder / "run.json").read_text(encoding="utf-8"))["facts"]
    assert facts["heap_growth_bytes"] >= 5 * GIB
