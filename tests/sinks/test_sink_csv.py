"""Tables of steps and of spans, written from the records of a run."""

from __future__ import annotations

import csv
import io
import re
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from random_frames import runs
from sink_builders import frame_of

from autoprof._storage.runs import RunFolder
from autoprof._storage.steps_jsonl import FrameEncoder
from autoprof.cli import main
from autoprof.frame import NOT_MEASURED, Phase, StepFrame
from autoprof.sinks._csv_tables import SPAN_COLUMNS

Rows = list[dict[str, str]]


def tables(folder: Path, frames: list[StepFrame]) -> tuple[Rows, Rows]:
    """Save a run and export its steps and its spans."""
    made = RunFolder.create(folder)
    records = "".join(map(FrameEncoder().encode, frames))
    (made.rank_path / "steps.jsonl").write_text(records, encoding="utf-8")
    steps, spans = made.path / "steps.csv", made.path / "spans.csv"
    assert main(["show", str(made.path), "--csv", str(steps), "--span-csv", str(spans)]) == 0
    read = [csv.DictReader(io.StringIO(one.read_bytes().decode(), newline=""), strict=True) for one in (steps, spans)]
    return list(read[0]), list(read[1])


@settings(max_examples=40)
@given(runs(max_steps=3))
def test_the_rows_hold_what_was_measured(tmp_path_factory: pytest.TempPathFactory, frames: list[StepFrame]) -> None:
    """The phases of a step sum to it; scalars and times are exact; what was not measured is empty, never a number."""
    steps, spans = tables(tmp_path_factory.mktemp("runs"), frames)
    for row, frame in zip(steps, frames, strict=True):
        assert None not in row.values()
        assert (row["rank"], row["step"], row["warmup"]) == ("0", str(frame.step), str(int(frame.warmup)))
        assert int(row["step_ns"]) == frame.step_ns == sum(int(row[f"{phase}_ns"]) for phase in Phase)
        for name, value in frame.scalars.items():
            assert repr(float(row[f"scalar/{name}"])) == repr(float(value))
    rows = iter(spans)
    for frame in frames:
        for number, span in enumerate(frame.spans):
            row = next(rows)
            assert (row["step"], row["span"], row["name"]) == (str(frame.step), str(number), span.name)
            assert row["fqn"] == (span.fqn or "")
            assert row["parent"] == ("" if span.parent is None else str(span.parent))
            for name in (*SPAN_COLUMNS[12:], "lane", "calls"):
                value = getattr(span, name)
                assert row[name] == ("" if value is None else str(value)), name
            seen = (
                frame.device_duration_ns is None or frame.device_ns is None or frame.device_ns[number] != NOT_MEASURED
            )
            assert row["total_ns"] == (str(frame.total_ns[number]) if seen else "")
    assert next(rows, None) is None


@pytest.mark.parametrize("text", ["=1+2", "+A1", "-cmd|' /C calc'!A0", "@SUM(A1)", "|x", "a\r\nb", "-1"])
def test_no_cell_is_a_formula(text: str, tmp_path: Path) -> None:
    """A spreadsheet shows the name of a span; numbers stay numbers."""
    frame = frame_of(((text, "user", -1, 1),), scalars={"loss": -inf})
    (step,), (span,) = tables(tmp_path, [frame])
    assert span["name"].removeprefix("'") == text
    assert span["name"] == "-1" or span["name"][0] not in "=+-@|"
    assert step["scalar/loss"] == "-inf"


def test_the_page_documents_every_column(tmp_path: Path) -> None:
    """The tables of docs/sinks.md name the columns of both tables."""
    (step,), _ = tables(tmp_path, [frame_of((("A", "user", -1, 1),))])
    page = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text("utf-8")
    section = page.partition("## CSV")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_0-9]+)`(?=[^|\n]*\|)", section))
    assert named >= {*step, *SPAN_COLUMNS}
