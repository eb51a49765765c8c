"""Columns of numbers whose names are not known: read, summarised and drawn, never taken for a loss or a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoprof.cli import main
from autoprof.logs import load_logs, plot_metrics

_ROWS = [(at, at % 7 - 2.5, 100.0 - at) for at in range(1, 31)]
WITH_STEPS = {
    "table": "step,foo,bar\n" + "".join(f"{at},{foo},{bar}\n" for at, foo, bar in _ROWS),
    "table after another line": "# run 7\nstep;foo;bar\n" + "".join(f"{at};{foo};{bar}\n" for at, foo, bar in _ROWS),
    "JSON lines": "".join(json.dumps({"step": at, "foo": foo, "bar": bar}) + "\n" for at, foo, bar in _ROWS),
    "key=value": "start\n" + "".join(f"step={at} foo={foo} bar={bar}\n" for at, foo, bar in _ROWS),
    "key: value": "".join(f"step: {at}, foo: {foo}, bar: {bar}\n" for at, foo, bar in _ROWS),
}


def _write(folder: Path, text: str, name: str = "log") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("form", WITH_STEPS)
def test_numbers_beside_a_step_are_summarised_and_drawn(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minimum, median, maximum and last value; a plot for each column; status 0."""
    log, figure = _write(tmp_path, WITH_STEPS[form]), tmp_path / "a.svg"
    assert main(["inspect", log, "-o", str(figure)]) == 0
    out = capsys.readouterr().out
    assert "30 rows, steps 1 to 30" in out
    assert [line.split() for line in out.splitlines() if line.startswith(("  column", "  foo", "  bar"))] == [
        ["column", "min", "median", "max", "last"], ["foo", "-2.5", "0.5", "3.5", "-0.5"],
        ["bar", "70", "84.5", "99", "70"],
    ]  # fmt: skip
    assert "Not in the log" not in out
    titles = [axes.get_title(loc="left") for axes in plot_metrics(load_logs(log), None).axes]
    assert titles == ["foo", "bar"]


def test_a_figure_has_a_limited_number_of_them(tmp_path: Path) -> None:
    """Six columns that vary, five beside a loss, so that rows are full; the others are named, and drawn on request."""
    names = [f"m{at}" for at in range(30)]
    rows = "".join(f"{at},1,{','.join(str(at * (n + 1)) for n in range(29))}\n" for at in range(1, 9))
    df = load_logs(_write(tmp_path, f"step,{','.join(names)}\n{rows}"))
    figure = plot_metrics(df, None)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["m1", "m2", "m3", "m4", "m5", "m6"]
    (note,) = figure.notes  # type: ignore[attr-defined]
    assert note.startswith("Not drawn (--plot NAME draws one): m7, m8,")
    chosen = plot_metrics(df, None, plots=["m0", "m29"])
    assert [axes.get_title(loc="left") for axes in chosen.axes] == ["m0", "m29"]
    with_loss = plot_metrics(df.assign(loss=1.0), None)
    assert [axes.get_title(loc="left") for axes in with_loss.axes] == ["Loss", "m1", "m2", "m3", "m4", "m5"]


def test_a_second_key_of_a_known_column_is_not_unknown(tmp_path: Path) -> None:
    """``learning_rate`` beside ``lr`` has no plot and no row of its own."""
    lines = "".join(f'{{"step": {at}, "loss": {at}, "lr": 0.1, "learning_rate": 0.1}}\n' for at in range(1, 9))
    figure = plot_metrics(load_logs(_write(tmp_path, lines)), None)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")] == ["Loss"]


def test_one_record_is_drawn(tmp_path: Path) -> None:
    """A point at its step, without fractions of steps on the axis."""
    (axes,) = plot_metrics(load_logs(_write(tmp_path, '{"step": 5, "loss": 1.6e24}\n')), None).axes
    assert axes.get_xticks().tolist() == [5.0]
