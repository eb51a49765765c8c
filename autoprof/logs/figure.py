"""``plot_metrics``: the figure of one training run, or of several over each other. It does not use pyplot."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import AutoprofError, nearest
from ..reports import figures as style
from ..reports.text import elide, safe
from .fields import FIELDS, unknown_columns

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RED: Final = "#d00000"
_PLOTS: Final[Mapping[str, str]] = {
    "loss": "loss|val_loss",
    "throughput": "throughput",
    "step time": "step_time_s|data_time",
    "GPU utilisation": r"gpu_util_\d+",
    "gradient norm": "grad_norm",
    "memory": "memory",
    "tokens per second": "tokens_per_s",
    "time by name": r"(?!other ).* \(ms\)",
}
"""By name of a plot: an expression that matches the names of its columns."""
_MAX_COLUMNS: Final = 6
"""Columns of one plot, and columns of unknown names that are drawn unasked."""


def plot_metrics(
    df: pd.DataFrame,
    output: str | os.PathLike[str] | None = "training_metrics.png",
    *,
    smooth: int | None = None,
    plots: Collection[str] = (),
) -> Figure:
    """Draw a table of ``load_logs`` over its steps and save the figure.

    Args:
        df: the table, or any DataFrame with columns such as ``loss`` and ``throughput``.
        output: the file (.png, .svg, .pdf); None saves nothing.
        smooth: records of the moving average; 1 for none, None for a hundredth of the records.
        plots: only these plots (``loss``, ``step time``, …) or columns; one alone is as wide as a column of a paper.

    Returns:
        The figure, which a notebook displays. Its ``notes`` name the plots that were omitted because their column is
        missing.

    Raises:
        AutoprofError: nothing to draw, an unknown plot or format, or a file that cannot be written.
    """
    if not len(df):
        raise AutoprofError("plot_metrics: the table is empty; allowed: a table of load_logs with at least one row")
    table = df if "step" in df else df.assign(step=range(1, len(df) + 1))
    chosen, notes = _choose_plots(table, plots)
    if not chosen:
        names = ", ".join(str(name) for name in df.columns)
        raise AutoprofError(f"plot_metrics: nothing to draw in the columns {names}; allowed: a column of numbers")
    figure = _draw(table, chosen, notes, smooth)
    if output is not None:
        style.save_figure(figure, output)
    return figure


def _choose_plots(table: pd.DataFrame, wanted: Collection[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns of each plot, of all or of the wanted ones, and notes on those that are not drawn."""
    numbers = table.select_dtypes("number").drop(columns="step")
    names = [str(name) for name in numbers if np.isfinite(numbers[name]).any()]
    found = {plot: [name for name in names if re.fullmatch(columns, name)] for plot, columns in _PLOTS.items()}
    found["time by name"].sort(key=lambda name: -float(table[name].mean()))
    chosen = {plot: columns[:_MAX_COLUMNS] for plot, columns in found.items() if columns}
    optional = ("tokens per second", "time by name")
    missing = [plot for plot in found if plot not in chosen and plot not in optional]
    others = [name for name in unknown_columns(table) if name in names and not name.endswith(" (ms)")]
    others.sort(key=lambda name: table[name].nunique() < 2)
    if wanted:
        allowed = [*found, *names]
        unknown = next((name for name in wanted if name not in allowed), None)
        if unknown is not None:
            raise AutoprofError(f"plots: {unknown!r} is no plot and no column of numbers; {nearest(unknown, allowed)}")
        missing = [name for name in wanted if found.get(name) == []]
        chosen = {name: chosen.get(name, [name]) for name in wanted if name not in missing}
        others = []
    elif not chosen:
        missing = []  # this is no log of a training
    chosen |= {name: [name] for name in others[:_MAX_COLUMNS]}
    notes = [f"Not in the log, so not drawn: {', '.join(missing)}."] if missing else []
    if len(others) > _MAX_COLUMNS:
        rest = elide(", ".join(map(safe, others[_MAX_COLUMNS:])), 400)
        notes.append(f"Not drawn (--plot NAME draws one): {rest}.")
    return chosen, notes


def _draw(table: pd.DataFrame, chosen: Mapping[str, list[str]], notes: list[str], smooth: int | None) -> Figure:
    from matplotlib.figure import Figure

    class MetricsFigure(Figure):
        """A figure that a notebook displays without pyplot; ``notes`` are the sentences below it."""

        notes: list[str]

        def _repr_png_(self) -> bytes:
            return style.encode_figure(self)

    named = table.assign(run=table["run"].astype(str) if "run" in table else "")
    runs = {safe(name): rows for name, rows in named.groupby("run", sort=False)}
    if len(runs) > len(style.COLORS):
        notes.append(f"{len(runs) - len(style.COLORS)} more runs are not drawn.")
        runs = dict([*runs.items()][: len(style.COLORS)])
    if "rank" in table and table["rank"].nunique() > 1:
        notes.append("Lines are means over the ranks, shades their range.")
    columns = 1 if len(chosen) == 1 else 2
    count = -(-len(chosen) // columns)
    with style.styled():
        width = style.TWO_COLUMNS_IN if columns == 2 else style.ONE_COLUMN_IN
        figure: Any = style.blank_figure(width, 2.35 * count + 0.45, MetricsFigure)
        places = list(figure.subplots(count, columns, squeeze=False).flat)
        for entry, axes in zip(chosen.items(), places, strict=False):
            _draw_plot(axes, runs, *entry, smooth)
        for axes in places[: len(chosen)]:
            axes.set_xlabel("step")
        for axes in places[len(chosen) :]:
            axes.remove()
        if len(runs) == 1:
            name = elide(next(iter(runs)), 44)
            figure.suptitle(name, fontsize=style.TITLE, color=style.FAINT, x=0.01, ha="left", parse_math=False)
        figure.notes = notes
        style.settle(figure, " ".join(notes))
    drawn: Figure = figure
    return drawn


def _draw_plot(
    axes: Axes, runs: Mapping[str, pd.DataFrame], title: str, columns: Sequence[str], smooth: int | None
) -> None:
    """Draw the columns of a plot: a colour for each, or for each run of several, with a line style for each column."""
    lines = [
        (run, at, name, line)
        for run, (label, table) in enumerate(runs.items())
        for at, name in enumerate(columns)
        if name in table and len(line := _line_of(table, name))
    ]
    for run, at, name, line in lines:
        label = name if len(runs) == 1 else [*runs][run] if len(columns) == 1 else f"{[*runs][run]} {name}"
        is_labelled = len(runs) > 1 or len(columns) > 1
        color = style.COLORS[(at if len(runs) == 1 else run) % len(style.COLORS)]
        _draw_line(axes, line, smooth, color=color, linestyle="-" if len(runs) == 1 else ("-", "--", ":", "-.")[at % 4],
                   label=safe(label) if is_labelled else "_")  # fmt: skip
        if name == "throughput" and len(line) >= 10:
            slow = line["mean"][line["mean"] < line["mean"].quantile(0.1)]
            axes.plot(slow.index, slow, ".", color=RED, label="below P10", markersize=3, zorder=1.95)
    is_known = title in _PLOTS
    style.set_title(axes, title[0].upper() + title[1:] if is_known else elide(safe(title), 44))
    axes.set_ylabel("ms" if title == "time by name" else FIELDS[columns[0]].unit if columns[0] in FIELDS else "")
    style.bare(axes)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.6g}")
    axes.locator_params(axis="x", nbins=6)
    if is_known and title != "loss":
        highest = max(float(line["mean"].max()) for *_, line in lines)
        typical = max(float(line["mean"].quantile(0.75)) for *_, line in lines)
        is_cut = highest > 3 * typical > 0  # a step that compiles would leave no height to the others
        axes.set_ylim(0, 3 * typical if is_cut else 1.06 * highest or 1)
        note = f"up to {highest:.3g}" if is_cut else ""
        axes.set_title(note, loc="right", fontsize=style.SMALL, color=style.FAINT)
    if title != "loss" or not any("lr" in table for table in runs.values()):
        return
    right = axes.twinx()
    for table in runs.values():
        rates = _line_of(table, "lr")["mean"] if "lr" in table else []
        right.plot(getattr(rates, "index", []), rates, ":", color=style.FAINT, linewidth=0.9, label="lr (right)")
    right.set_ylabel("lr", color=style.FAINT)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    right.set_ylim(0)


def _line_of(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the finite values of a column: mean, min and max over the ranks, by step."""
    known = table[["step", name]].replace([np.inf, -np.inf], np.nan).dropna()
    return known[name].groupby(known["step"]).agg(["mean", "min", "max"])


def _draw_line(axes: Axes, line: pd.DataFrame, smooth: int | None, **look: Any) -> None:
    """Draw the values pale and their moving average strong; few values are drawn alone. The range is a shade."""
    count = len(line)
    window = smooth or (max(5, count // 100) if count >= 24 else 1)
    if (line["max"] > line["min"]).any():
        axes.fill_between(line.index, line["min"], line["max"], color=look["color"], alpha=0.15, linewidth=0)
    if window > 1:
        axes.plot(line.index, line["mean"], color=look["color"], linewidth=0.6, alpha=0.35, zorder=1.8)
    average = line["mean"].rolling(window, min_periods=1, center=True).mean()
    axes.plot(line.index, average, linewidth=1.4, marker="o" if count <= 40 else None, markersize=2.6, **look)
