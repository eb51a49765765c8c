"""Tables of steps and of spans."""

from __future__ import annotations

import csv
import io
import re
from math import inf
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from random_frames import runs
from sink_builders import Clock, frame_of, summary_of

from autoprof._storage.runs import RunFolder
from autoprof.frame import NOT_MEASURED, Phase, StepFrame
from autoprof.sinks._base import RunInfo
from autoprof.sinks.csv import SPAN_COLUMNS, CsvOptions, CsvSink, SpanTable, StepTable, extras, line


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), strict=True))


def open_sink(tmp_path: Path, clock: Clock, **options: object) -> tuple[CsvSink, Path]:
    run = RunInfo(RunFolder.create(tmp_path), 0, io.StringIO(), clock)
    assert run.folder is not None
    settings = CsvOptions(**options)
    return CsvSink(settings, run), run.folder.rank_path / f"{settings.per}s.csv"


@given(runs())
def test_a_row_of_a_step_holds_its_account(frames: list[StepFrame]) -> None:
    """Every row has every column, the phases are the step, and scalars are read back to the last bit."""
    table = StepTable(rank=3)
    text = table.header(extras(frames[0])) + "".join(table.row(frame) for frame in frames)
    rows = read(text)
    assert len(rows) == len(frames)
    for row, frame in zip(rows, frames, strict=True):
        assert None not in row.values()
        assert (row["rank"], row["step"], row["warmup"]) == ("3", str(frame.step), str(int(frame.warmup)))
        assert int(row["step_ns"]) == frame.step_ns == sum(int(row[f"{phase}_ns"]) for phase in Phase)
        assert row["device_duration_ns"] == str(
            frame.device_duration_ns or ("" if frame.device_duration_ns is None else 0)
        )
        for name in table.extra:
            value = extras(frame).get(name)
            assert row[name] == ("" if value is None else row[name])
            assert value is None or repr(float(row[name])) == repr(float(value))


@given(runs())
def test_a_row_of_a_span_holds_its_times(frames: list[StepFrame]) -> None:
    """Every span is a row with its unchanged name; a value that was not measured is empty, never a number."""
    table = SpanTable()
    text = table.header() + "".join(table.rows(frame) for frame in frames)
    rows = iter(read(text))
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


FORMULAS = ["=1+2", "+A1", "-cmd|' /C calc'!A0", "@SUM(A1)", "|x", "\t=1", "-1+1"]


@given(st.text(), st.floats())
@example("a\r\nb", 0.0)
def test_no_cell_is_a_formula_and_numbers_stay_numbers(text: str, number: float) -> None:
    """Whatever the text is; a negative number begins as a formula does."""
    shown, negative = next(csv.reader(io.StringIO(line((text, repr(-number))), newline="")))
    assert float(shown) <= inf if shown[:1] in ("+", "-") else shown[:1] not in ("=", "@", "|", "\t", "\r")
    assert negative == repr(-number)


def test_values_that_are_logged_late_are_in_the_last_column(tmp_path: Path, clock: Clock) -> None:
    """The header has the values of the first row; later ones are JSON."""
    sink, path = open_sink(tmp_path, clock)
    for step in range(1, 5):
        sink.write(frame_of(step=step, scalars={"lr": 0.1} | ({"loss": 1 / step} if step % 2 == 0 else {})))
    sink.close(summary_of([]))
    rows = read(path.read_text("utf-8"))
    assert [row["scalar/lr"] for row in rows] == ["0.1"] * 4
    assert [row["more"] for row in rows] == ["", '{"scalar/loss": "0.5"}', "", '{"scalar/loss": "0.25"}']


def test_the_page_documents_every_column() -> None:
    """The tables of docs/sinks.md name the columns of both tables, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text("utf-8")
    section = page.partition("## CSV")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_0-9]+)`(?=[^|\n]*\|)", section))
    assert named >= {*StepTable().header({}).strip().split(","), *SPAN_COLUMNS}
