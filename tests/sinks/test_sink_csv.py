"""The table of steps, written from the records of a run."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from random_frames import runs
from sink_builders import frame_of

from autoprof._storage.runs import RunFolder
from autoprof._storage.steps_jsonl import FrameEncoder
from autoprof.cli import main
from autoprof.frame import Phase, StepFrame


def table(folder: Path, frames: list[StepFrame]) -> list[dict[str, str]]:
    """Save a run and export its steps."""
    made = RunFolder.create(folder)
    records = "".join(map(FrameEncoder().encode, frames))
    (made.rank_path / "steps.jsonl").write_text(records, encoding="utf-8")
    out = made.path / "steps.csv"
    assert main(["show", str(made.path), "--csv", str(out)]) == 0
    return list(csv.DictReader(io.StringIO(out.read_bytes().decode(), newline=""), strict=True))


@settings(max_examples=40)
@given(runs(max_steps=3))
def test_the_rows_hold_what_was_measured(tmp_path_factory: pytest.TempPathFactory, frames: list[StepFrame]) -> None:
    """The phases of a step sum to it; scalars and times are exact; what was not measured is empty, never a number."""
    rows = table(tmp_path_factory.mktemp("runs"), frames)
    for row, frame in zip(rows, frames, strict=True):
        assert None not in row.values()
        assert (row["rank"], row["step"], row["warmup"]) == ("0", str(frame.step), str(int(frame.warmup)))
        assert int(row["step_ns"]) == frame.step_ns == sum(int(row[f"{phase}_ns"]) for phase in Phase)
        for name, value in frame.scalars.items():
            assert repr(float(row[f"scalar/{name}"])) == repr(float(value))


def test_the_page_documents_every_column(tmp_path: Path) -> None:
    """docs/sinks.md names the columns."""
    (step,) = table(tmp_path, [frame_of((("A", "user", -1, 1),))])
    page = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text("utf-8")
    section = page.partition("## CSV")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_0-9]+)`(?=[^|\n]*\|)", section))
    assert named >= {*step}
