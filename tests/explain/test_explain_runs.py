"""``autoprof explain``: the JSON is by its schema and short, the text says the same, places are in the user's code."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoprof.base.frame import Phase
from autoprof.base.storage.runs import RunFolder, read_run
from autoprof.base.summary import Finding, Summary
from autoprof.diagnose import Change, Operation, PythonThread, Quantity, RunFacts
from autoprof.diagnose._calls import CallSite
from autoprof.frontends.cli import main
from autoprof.reports.explain import MAX_BYTES, Explanation, encode, explain_run, json_schema
from autoprof.reports.explain.data import CodePlace, Confidence, Expectation, ExplainedCause, Trial, Unmeasured
from autoprof.testing import FakeClock
from tests.defects.training import MS, Layer, four_layers, train

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")


def save(summary: Summary, *, ended: str = "closed", **info: Any) -> Path:
    """Save a summary as a run; return its folder."""
    folder = RunFolder.create("runs")
    folder.write_summary(summary, [])
    for key, value in info.items():
        folder.note(key, value)
    folder.finish(ended)
    return folder.path


def explain(summary: Summary, **info: Any) -> Explanation:
    """Explain a summary as that of a saved run."""
    return explain_run(read_run(save(summary, **info)))


def finding(rule: str = "data-wait", **fields: Any) -> Finding:
    """Return a finding of a rule."""
    return Finding(rule, "warning", "each step waits for its batch", "more num_workers", **fields)


def diagnosed(*findings: Finding, **fields: Any) -> Summary:
    """Return the summary of 40 steps with these findings."""
    base = replace(Summary.empty(), steps=40, total_step_ns=40 * 100 * MS, step_mean_ns=100 * MS, step_p50_ns=100 * MS)
    return replace(base, findings=findings, phases={Phase.FORWARD: 40 * 100 * MS, Phase.OTHER: 0}, **fields)


def valid(found: Explanation) -> dict[str, Any]:
    """Return the JSON of an explanation, checked by the schema and the limit."""
    text = encode(found)
    data: dict[str, Any] = json.loads(text)
    jsonschema.validate(data, json_schema())
    assert len(text.encode()) + 1 <= MAX_BYTES
    return data


def test_the_schema_has_the_words_of_the_rules() -> None:
    """Each change, operation and quantity that a rule can name is in the schema."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    trial = schema["$defs"]["Trial"]["properties"]
    assert schema["properties"]["schema"]["const"] == schema["$id"]
    assert trial["change"]["enum"] == list(get_args(Change))
    assert trial["operation"]["enum"] == list(get_args(Operation))
    assert schema["$defs"]["Expectation"]["properties"]["quantity"]["enum"] == list(get_args(Quantity))


def test_a_healthy_run_has_no_cause() -> None:
    """Its state says so; what was not measured is listed all the same."""
    clock = FakeClock()
    found = valid(explain(train(four_layers(clock), clock)))
    assert (found["state"], found["causes"]) == ("healthy", [])
    assert "a GPU" in {one["missing"] for one in found["unmeasured"]}


def test_a_cause_has_gain_confidence_and_what_to_expect() -> None:
    """The figures are those of the finding; the step is expected to fall by the gain at best."""
    clock = FakeClock()
    data = valid(explain(train(four_layers(clock), clock, wait_ms=500)))
    (cause,) = data["causes"]
    assert (cause["rule"], cause["confidence"]["level"]) == ("data-wait", "high")
    assert cause["confidence"]["low"] <= cause["confidence"]["share"] <= cause["confidence"]["high"]
    assert cause["experiment"]["change"] == "loader.num_workers"
    expect = cause["experiment"]["expect"]
    assert expect["now"] - expect["at_best"] == pytest.approx(cause["gain_ns"], abs=2)


def test_a_busy_machine_makes_the_other_causes_uncertain() -> None:
    """The other processes may be the reason, and a doubt says so."""
    evidence = {"share": 0.5, "share_low": 0.45, "share_high": 0.55, "bound": 0.1}
    certain = valid(explain(diagnosed(finding(evidence=evidence))))
    busy = replace(diagnosed(finding(evidence=evidence)), conditions=("beside other processes: they kept all busy",))
    doubtful = valid(explain(busy))
    assert certain["causes"][0]["confidence"]["level"] == "high"
    assert doubtful["causes"][0]["confidence"]["level"] == "low"
    assert "other processes" in doubtful["doubts"][0]


def test_a_slow_module_is_found_in_the_users_code(tmp_path: Path) -> None:
    """The place is the module's path, its class, and the line of its ``forward``."""
    clock = FakeClock()
    model = four_layers(clock)
    model[1] = Layer(clock, forward_ms=600)
    config = {"targets": [{"match": r"\d(\.layer)?"}], "output": "runs", "sinks": {"jsonl": {}}}
    train(model, clock, config=config)
    (folder,) = Path("runs").iterdir()
    cause = valid(explain_run(read_run(folder)))["causes"][0]
    lines, first = inspect.getsourcelines(Layer.forward)
    assert (cause["rule"], cause["place"]["module"], cause["place"]["class"]) == ("hot-module", "1", "Layer")
    assert cause["place"]["file"] == inspect.getsourcefile(Layer)
    assert first <= cause["place"]["line"] < first + len(lines)
    assert (cause["experiment"]["change"], cause["experiment"]["target"]) == ("module.code", "1")
    assert cause["confidence"]["bound"] == 0.1  # the least excess over the siblings, as a share of the step


def test_the_line_of_a_call_is_its_full_path() -> None:
    """The evidence has the short path of the reports, the facts of the run the full one."""
    site = {"where": "train.py:42", "function": "main", "call": "print", "source": "", "calls_per_step": 1}
    call = {"file": "/home/x/train.py", "line": 42, "function": "main", "call": "print", "source": "", "count": 40}
    logs = {"steps": 40, "cost_ns": [1, 1, 1, 1], "mean_cost_ns": 1, "mean_ns": 1, "sites": [{**call, "ns": 9}]}
    facts = {**RunFacts().to_dict(), "logs": logs}
    (cause,) = valid(explain(diagnosed(finding("logging", evidence={"sites": [site]})), facts=facts))["causes"]
    assert (cause["place"]["file"], cause["place"]["line"], cause["place"]["function"]) == (
        "/home/x/train.py",
        42,
        "main",
    )
    assert (cause["experiment"]["change"], cause["experiment"]["target"]) == ("call.every", "print")


def test_the_line_of_a_thread_is_its_full_path() -> None:
    """As that of a call."""
    line = CallSite("/home/x/train.py", 21, "run", "", "", 5, 0)
    thread = PythonThread("Reporter", 0.9, line)
    found = finding("python-thread", evidence=thread.evidence())
    (cause,) = valid(explain(diagnosed(found), facts=RunFacts(threads=(thread,)).to_dict()))["causes"]
    assert (cause["place"]["file"], cause["place"]["line"], cause["place"]["function"]) == (line.file, 21, "run")


def test_a_run_that_was_killed_is_explained_from_its_records() -> None:
    """A doubt says that it is not complete."""
    clock = FakeClock()
    config = {"targets": [{"match": r"\d"}], "output": "runs", "sinks": {"jsonl": {"flush_s": 0}}}
    train(four_layers(clock), clock, wait_ms=500, config=config)
    (folder,) = Path("runs").iterdir()
    (folder / "summary.json").unlink()
    info = json.loads((folder / "run.json").read_text("utf-8"))
    (folder / "run.json").write_text(json.dumps({**info, "ended": None}))
    data = valid(explain_run(read_run(folder)))
    assert data["causes"][0]["rule"] == "data-wait"
    assert any("not closed" in one for one in data["doubts"])


def test_a_rule_of_another_package_has_its_advice() -> None:
    """Without an experiment the change is ``other``, and the text is the advice."""
    (cause,) = valid(explain(diagnosed(finding("not-installed-here", name="x"))))["causes"]
    assert (cause["experiment"]["change"], cause["experiment"]["operation"]) == ("other", "edit")
    assert cause["experiment"]["advice"] == "more num_workers"


TEXTS = st.text(max_size=500)


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(0, 12), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_any_texts_fit(texts: list[str], causes: int, unmeasured: int) -> None:
    """Whatever the names are: control characters, surrogates, four-byte characters."""
    text = texts[0] * 3
    place = CodePlace("data", text, text, text, text, 10**9, text, text, 10**6)
    trial = Trial("other", "edit", text, text, text, Expectation("step_ns", 1e18, 1e18))
    cause = ExplainedCause(text, "critical", text, place, 10**18, Confidence("high", 0.123456, 0.1, 0.2, 0.1), trial)
    lack = Unmeasured(text, tuple(texts), text)
    valid(Explanation(text, "found", 1, 1, "device", (cause,) * causes, (lack,) * unmeasured, tuple(texts)))


def test_the_command_prints_json_of_the_latest_run(capfd: pytest.CaptureFixture[str]) -> None:
    """Without RUN the latest run in ``runs`` is explained, on one line."""
    save(diagnosed(), start="2026-01-02T00:00:00+00:00")
    save(diagnosed(finding(name="模块")), start="2026-01-03T00:00:00+00:00")
    save(diagnosed(), start="2026-01-01T00:00:00+00:00")
    assert main(["explain", "--json"]) == 0
    out = capfd.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out)["causes"][0]["place"]["name"] == "模块"


def test_the_gain_and_the_step_are_of_one_mean() -> None:
    """Half of the recorded steps of 100 ms can be gained: half of the 30 ms that all steps took on average."""
    wait = finding(gain_ns=50 * MS, evidence={"share": 0.5, "bound": 0.1})
    (cause,) = explain(diagnosed(wait, run_steps=400, run_ns=400 * 30 * MS)).causes
    expected = cause.experiment.expect
    assert (expected.now, expected.at_best) == (30 * MS, 15 * MS)
