"""The table of phases: one entry is all that a phase needs, also one of another package."""

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from torch import nn

import autoprof
from autoprof import Phase
from autoprof.base.frame import MODULE_PHASES, PhaseTraits
from autoprof.capture.marks.codes import ENTER, LEAVE
from autoprof.config.rules import ModulePhase
from autoprof.frontends.cli import main
from autoprof.frontends.compare import compare_runs
from autoprof.testing import ListSink


@pytest.fixture(autouse=True)
def same_table() -> Iterator[None]:
    """Remove the phases that a test has added."""
    before = list(Phase)
    yield
    for phase in [phase for phase in Phase if phase not in before]:
        del Phase._member_map_[phase.name], Phase._value2member_map_[phase.value]
        Phase._member_names_.remove(phase.name)
        delattr(Phase, phase.name)


@pytest.fixture
def reduction() -> Phase:
    """A phase that another package adds."""
    return Phase.add("reduction", PhaseTraits("red", "#cc79a7", own_work=False))


def run(output: Path, phase: Phase) -> ListSink:
    """Train three steps with a span of this phase in each, marked as a probe does, and every sink of files."""
    model, sink = nn.Linear(4, 4), ListSink()
    sinks: dict[str, dict[str, object]] = {name: {} for name in ("log", "jsonl")}
    sample = {"warmup": 0, "budget": None}
    config = {"targets": [{"match": ".*"}], "output": str(output), "sinks": sinks, "sample": sample}
    with autoprof.instrument(model, config, sinks=[sink]) as session:
        recorder = session._steps._recording.recorder
        code = recorder.label("Reduce", None, phase)
        for _ in range(3):
            model(model.weight).sum().backward()
            recorder.mark(code | ENTER)
            sum(range(10_000))
            recorder.mark(code | LEAVE)
            session.step()
    return sink


def test_a_phase_of_another_package_is_a_phase_like_any_other(reduction: Phase) -> None:
    """It is found by value and name, stands before ``other``, and survives copying and pickling."""
    assert Phase("reduction") is Phase["REDUCTION"] is Phase.add("reduction") is reduction
    assert list(Phase)[-2:] == [reduction, Phase.OTHER]
    assert copy.deepcopy(reduction) is pickle.loads(pickle.dumps(reduction)) is reduction
    assert (str(reduction), reduction.short, reduction.qualify("A")) == ("reduction", "red", "A")


def test_an_added_phase_travels_from_the_marks_to_every_output(reduction: Phase, tmp_path: Path) -> None:
    """Resolve, statistics, report, log, trace and records know it by its entry alone."""
    sink = run(tmp_path, reduction)
    frame, summary = sink.frames[-1], sink.summary
    assert summary is not None
    assert reduction in [span.phase for span in frame.spans]
    assert sum(frame.phase_ns().values()) == frame.step_ns
    assert summary.phases[reduction] > 0
    assert sum(summary.phases.values()) == summary.total_step_ns
    (folder,) = (path.parent for path in tmp_path.rglob("run.json"))
    assert "reduction" in (folder / "summary.txt").read_text()
    assert "reduction" in next(folder.rglob("timing.log")).read_text()
    trace = tmp_path / "trace.json"
    assert main(["show", str(folder), "--trace", str(trace)]) == 0
    assert "reduction" in {event.get("cat") for event in json.loads(trace.read_text())}
    saved = autoprof.read_run(folder).summary
    assert saved is not None
    assert saved.phases == summary.phases
    assert any(row.phase is reduction for row in compare_runs(folder, folder, min_share=0).rows)


def test_files_with_a_phase_that_is_not_in_the_table_are_read(tmp_path: Path) -> None:
    """Phases of packages that are not imported here."""
    run(tmp_path, Phase.USER)
    (folder,) = (path.parent for path in tmp_path.rglob("run.json"))
    for path in (folder / "summary.json", *folder.rglob("steps.jsonl")):
        path.write_text(path.read_text().replace('"user"', '"validation"'))
    saved = autoprof.read_run(folder)
    assert saved.summary is not None
    assert "validation" in [str(phase) for phase in saved.summary.phases]
    assert all("validation" in [str(span.phase) for span in frame.spans] for frame in saved.frames)


def test_targets_select_the_phases_of_a_module() -> None:
    """The type of the configuration, which has to be written out, has the phases of the table."""
    assert get_args(ModulePhase) == MODULE_PHASES


def test_a_phase_that_differs_in_its_case_is_refused() -> None:
    """``Data`` beside ``data`` would be read as one by people."""
    with pytest.raises(ValueError, match="differs from 'data' only in its case"):
        Phase.add("Data")
