"""The data of ``report.html``: random runs keep their laws on the way to the page."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from random_frames import runs
from sink_builders import summary_of

from autoprof._reports.page.payload import run_payload
from autoprof._storage.runs import RunFolder, read_run
from autoprof._storage.steps_jsonl import FrameEncoder
from autoprof.frame import TRAINING_LANE, StepFrame


@settings(deadline=None)
@given(frames=runs())
def test_the_tree_of_any_run_adds_up_to_its_steps(frames: list[StepFrame]) -> None:
    """Roots, time of the model in no name and unattributed time; whatever the lanes, readings and scalars are."""
    with tempfile.TemporaryDirectory() as output:
        folder = RunFolder.create(output, name="run")
        (folder.rank_path / "steps.jsonl").write_text("".join(map(FrameEncoder().encode, frames)), encoding="utf-8")
        summary = summary_of(frames)
        found = json.loads(json.dumps(run_payload(read_run(Path(output) / "run"), summary), allow_nan=False))
    tree, rows = found["tree"], found["rows"]
    roots = sum(ns for ns, parent in zip(tree["ns"], tree["parent"], strict=True) if parent < 0)
    assert roots + tree["other"] + sum(tree["model"].values()) == tree["total"]
    assert tree["steps"] == summary.steps
    assert tree["total"] == summary.total_step_ns
    assert all(rows["lane"][row] == TRAINING_LANE for row in tree["row"])
