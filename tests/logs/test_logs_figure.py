"""The figure of a training run: its plots, omissions, notes and files."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forking_python import ForkingPython
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from autoprof.errors import AutoprofError
from autoprof.logs import load_logs, plot_metrics
from autoprof.logs.figure import RED

FIXTURES = Path(__file__).parent / "fixtures"


def _titles(figure: Figure) -> list[str]:
    return [title for axes in figure.axes if (title := axes.get_title(loc="left"))]


def _table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"step": range(1, 51), "loss": np.linspace(3, 1, 50), **columns})


def test_the_log_of_the_first_tool_has_every_plot() -> None:
    """Loss with lr, throughput, step time, utilisation by GPU."""
    figure = plot_metrics(load_logs(FIXTURES / "seed.jsonl"), None)
    assert _titles(figure) == [
        "Loss", "Throughput", "Step time", "GPU utilisation", "Gradient norm",
    ]  # fmt: skip
    assert any(axes.get_ylabel() == "lr" for axes in figure.axes)


def test_a_plot_without_its_column_is_omitted_with_a_note() -> None:
    """What the log does not have is named in the figure and in its notes."""
    figure = plot_metrics(_table(), None)
    assert _titles(figure) == ["Loss"]
    assert figure.notes == [
        "Not in the log, so not drawn: throughput, step time, GPU utilisation, gradient norm, memory."
    ]
    assert figure.get_supxlabel().startswith("Not in the log")


def test_one_plot_is_one_column_of_a_paper_wide() -> None:
    """``plots`` selects; what is not in the log is named, and nothing else."""
    figure = plot_metrics(_table(lr=1e-3, throughput=5.0), None, plots=["loss", "memory"])
    assert _titles(figure) == ["Loss"]
    assert figure.get_figwidth() == 3.5
    assert figure.notes == ["Not in the log, so not drawn: memory."]


def test_throughput_below_p10_is_red() -> None:
    """Just the records below the run's tenth percentile are marked, at their places."""
    rate = np.full(50, 100.0)
    rate[[7, 21]] = 10, 20
    figure = plot_metrics(_table(throughput=rate), None)
    axes = next(axes for axes in figure.axes if axes.get_title(loc="left") == "Throughput")
    marked = next(line for line in axes.lines if line.get_label() == "below P10")
    assert to_hex(marked.get_color()) == RED
    assert list(marked.get_xdata()) == [8, 22]


def test_the_moving_average_is_over_the_records_that_were_asked_for() -> None:
    """``smooth=3`` is the centred mean of three records; 1 draws none."""
    loss = np.tile([1.0, 2.0, 3.0], 10)
    figure = plot_metrics(pd.DataFrame({"loss": loss}), None, smooth=3)
    assert figure.axes[0].lines[1].get_ydata()[1:-1] == pytest.approx(np.full(28, 2.0))
    assert len(plot_metrics(pd.DataFrame({"loss": loss}), None, smooth=1).axes[0].lines) == 1


def test_ranks_are_a_mean_with_their_range() -> None:
    """Of several ranks the mean is drawn, with the range as a shade and a note."""
    figure = plot_metrics(load_logs(FIXTURES / "accelerate_two_ranks.log"), None)
    assert len(figure.axes[0].collections) == 1
    assert "Lines are means over the ranks, shades their range." in figure.notes


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_figure_is_written_in_the_format_of_its_name(tmp_path: Path, suffix: str) -> None:
    """PNG, SVG and PDF begin as such files begin."""
    path = tmp_path / f"figure.{suffix}"
    plot_metrics(_table(), path)
    assert path.read_bytes().lstrip().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])


def test_a_notebook_shows_the_figure(forking_python: ForkingPython) -> None:
    """The figure gives itself as PNG, and no pyplot is loaded."""
    code = (
        "import sys; from autoprof.logs import load_logs, plot_metrics; "
        f"figure = plot_metrics(load_logs({str(FIXTURES / 'seed.jsonl')!r}), None); "
        "print(figure._repr_png_()[:4] == b'\\x89PNG', 'matplotlib.pyplot' in sys.modules)"
    )
    found = subprocess.run([*forking_python.command, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"]


def test_names_in_chinese_and_with_dollars_are_drawn(tmp_path: Path) -> None:
    """A run's name is text, whatever is in it: no warning of a missing glyph, no formula."""
    path = tmp_path / "训练_$a$_日志.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    plot_metrics(load_logs(path), tmp_path / "figure.png")


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (pd.DataFrame(), {}, "the table is empty"),
        (pd.DataFrame({"step": [1, 2], "n": ["a", "b"]}), {}, "nothing to draw in the columns step, n"),
        (_table(), {"plots": ["los"]}, "plots: 'los' is no plot and no column of numbers; did you mean 'loss'"),
        (_table(), {"output": "figure.bmp"}, "is not a format"),
        (_table(), {"output": "nowhere/figure.png"}, "cannot be written"),
    ],
)
def test_an_unusable_argument_is_an_error(table: pd.DataFrame, options: dict[str, Any], message: str) -> None:
    """A wrong argument is an error with what is allowed."""
    with pytest.raises(AutoprofError, match=message):
        plot_metrics(table, **{"output": None, **options})
