"""``plot_metrics``: the figure of one training run, or of several over each other. It does not use pyplot."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .._reports.figures import (
    FAINT,
    INK,
    ONE_COLUMN_IN,
    SMALL,
    TEXT,
    TITLE,
    TWO_COLUMNS_IN,
    Legend,
    bare,
    blank_figure,
    encode_figure,
    legend_of,
    save_figure,
    set_title,
    settle,
    styled,
)  # fmt: skip
from .._reports.text import cells, elide, safe
from ..errors import AutoprofError, nearest
from .fields import FIELDS, RATES, is_loss, unknown_columns

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c564b", "#7f7f7f", "#b2a900")
RED: Final = "#d00000"
_MAX_NAME_CELLS: Final = 44
_TIMER_SUFFIX: Final = " (ms)"
"""The end of a name of a timing log's column."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a figure and the settings that all its plots share."""

    tables: Mapping[str, pd.DataFrame]
    x: str
    """The column on the x axis."""
    x_label: str
    x_unit: float
    """The unit of the x axis in the unit of the column, as 60 for minutes."""
    window: int | None
    """Records of the moving average, 1 for none; None: a hundredth of the records."""
    notes: list[str] = field(default_factory=list)

    def color(self, run: str) -> str:
        """Return the colour of a run, the same in every plot."""
        return COLORS[list(self.tables).index(run)]

    def has(self, name: str, above: float = -np.inf) -> bool:
        """Return whether a run has a finite value of a column above a limit."""
        columns = [table[name] for table in self.tables.values() if name in table]
        numbers = [values for values in columns if values.dtype.kind in "iuf"]
        return any(bool((np.isfinite(values) & (values > above)).any()) for values in numbers)

    def names(self) -> list[str]:
        """Return the names of the columns that have numbers."""
        found = dict.fromkeys(str(name) for table in self.tables.values() for name in table)
        return [name for name in found if self.has(name)]

    @property
    def rate(self) -> str:
        """The column of the throughput: samples if logged, else tokens."""
        return next((name for name in RATES if self.has(name)), "throughput")

    def lines(self, name: str) -> list[tuple[str, pd.DataFrame]]:
        """Return the finite values of a column in each run that has it: mean, min and max over its ranks, by x."""
        found = []
        for run, table in self.tables.items():
            if name in table and self.x in table:
                known = table[[self.x, name]].replace([np.inf, -np.inf], np.nan).dropna()
                if len(known):
                    by_x = known[name].groupby(known[self.x] / self.x_unit)
                    found.append((run, by_x.agg(["mean", "min", "max"])))
        return found


class _Plot(NamedTuple):
    draw: Callable[[Axes, Runs], Legend]
    is_possible: Callable[[Runs], bool]
    is_expected: bool = False
    """Whether a training log usually has its columns: the figure then names it if it is missing."""


def plot_metrics(
    df: pd.DataFrame, output: str | os.PathLike[str] | None = "training_metrics.png", *, x: str = "step",
    smooth: int | None = None, plots: Collection[str] = (),
) -> Figure:  # fmt: skip
    """Draw a table of ``load_logs`` and save the figure.

    Args:
        df: the table, or any DataFrame with columns such as ``loss`` and ``throughput``.
        output: the file (.png, .svg, .pdf); None saves nothing.
        x: ``step``, ``time`` or ``tokens``.
        smooth: records of the moving average; 1 for none, None for a hundredth of the records.
        plots: only these plots (``loss``, ``step time``, …) or columns of the log; one alone is as wide as one column
            of a paper.

    Returns:
        The figure, which a notebook displays. Its ``notes`` name the plots that were omitted because their column is
        missing.

    Raises:
        AutoprofError: nothing to draw, an unknown axis or format, or a file that cannot be written.
    """
    if not len(df):
        raise AutoprofError("plot_metrics: the table is empty; allowed: a table of load_logs with at least one row")
    runs = _make_runs(df, x, smooth)
    chosen = _choose_plots(runs, plots)
    if not chosen:
        names = ", ".join(str(name) for name in df.columns)
        raise AutoprofError(f"plot_metrics: nothing to draw in the columns {names}; allowed: a column of numbers")
    figure = _draw(runs, chosen)
    if output is not None:
        save_figure(figure, output)
    return figure


def _make_runs(df: pd.DataFrame, x: str, smooth: int | None) -> Runs:
    """Return the runs of the table, with their x axis."""
    x_columns = {"step": "step", "time": "elapsed_s", "tokens": "tokens"}
    if x not in x_columns:
        raise AutoprofError(f"x: {x!r} is not an axis; {nearest(x, x_columns)}")
    column = x_columns[x]
    table = df if "step" in df else df.assign(step=range(1, len(df) + 1))
    if column not in table or not table[column].notna().any():
        raise AutoprofError(f"x: {x!r} is not in the log; allowed: 'step'")
    tables = {"": table}
    if "run" in table:
        names = table["run"].astype(str)
        tables = {name: table[names == name] for name in dict.fromkeys(names)}
    notes = []
    if any("rank" in part and part["rank"].nunique() > 1 for part in tables.values()):
        notes.append("Lines are means over the ranks, shades their range.")
    if len(tables) > len(COLORS):
        notes.append(f"{len(tables) - len(COLORS)} more runs are not drawn.")
    label, unit = x, 1.0
    if x == "time":
        most = float(table[column].max())
        unit, word = (3600.0, "h") if most > 7200 else (60.0, "min") if most > 120 else (1.0, "s")
        label = f"time since the start ({word})"
    return Runs(dict(list(tables.items())[: len(COLORS)]), column, label, unit, smooth, notes)


def _choose_plots(runs: Runs, wanted: Collection[str]) -> list[Callable[[Axes, Runs], Legend]]:
    """Return the plots that the columns allow, all or the wanted ones; add notes about the others."""
    max_other_columns = 6
    possible = {name: plot for name, plot in PLOTS.items() if plot.is_possible(runs)}
    if wanted:
        allowed = [*PLOTS, *runs.names()]
        unknown = next((name for name in wanted if name not in allowed), None)
        if unknown is not None:
            raise AutoprofError(f"plots: {unknown!r} is no plot and no column of numbers; {nearest(unknown, allowed)}")
        missing = [name for name in wanted if name in PLOTS and name not in possible]
        chosen = [
            possible[name].draw if name in possible else partial(_draw_column, name=name)
            for name in dict.fromkeys(wanted)
            if name not in missing
        ]
    else:
        missing = [name for name, plot in PLOTS.items() if plot.is_expected and name not in possible]
        others = _other_columns(runs)
        shown = others[: max_other_columns - len(possible) % 2]
        chosen = [plot.draw for plot in possible.values()] + [partial(_draw_column, name=name) for name in shown]
        missing = missing if possible else []  # else it is no log of a training
        if len(others) > len(shown):
            rest = ", ".join(elide(safe(name), _MAX_NAME_CELLS) for name in others[len(shown) :])
            runs.notes.insert(0, f"Not drawn (--plot NAME draws one): {elide(rest, 400)}.")
    if missing:
        runs.notes.insert(0, f"Not in the log, so not drawn: {', '.join(missing)}.")
    return chosen


def _losses(runs: Runs) -> list[str]:
    """Return the column ``loss``, or without it others such as ``loss_bbox``."""
    if runs.has("loss"):
        return ["loss"]
    return [name for name in runs.names() if name not in FIELDS and is_loss(name)][:4]


def _other_columns(runs: Runs) -> list[str]:
    """Return the columns of numbers that no plot draws, those that vary first."""
    drawn = _losses(runs)
    names = dict.fromkeys(name for table in runs.tables.values() for name in unknown_columns(table))
    is_constant = {
        name: all(table[name].nunique() < 2 for table in runs.tables.values() if name in table)
        for name in names
        if name not in drawn and not name.endswith(_TIMER_SUFFIX)
    }
    return sorted(is_constant, key=lambda name: is_constant[name])


def _draw(runs: Runs, chosen: list[Callable[[Axes, Runs], Legend]]) -> Figure:
    from matplotlib.figure import Figure

    class MetricsFigure(Figure):
        """A figure that a notebook displays without pyplot; ``notes`` are the sentences below it."""

        notes: list[str]

        def _repr_png_(self) -> bytes:
            return encode_figure(self)

    columns = 1 if len(chosen) == 1 else 2
    rows = -(-len(chosen) // columns)
    with styled():
        width = TWO_COLUMNS_IN if columns == 2 else ONE_COLUMN_IN
        figure: Any = blank_figure(width, 2.35 * rows + 0.45, MetricsFigure)
        places = list(figure.subplots(rows, columns, squeeze=False).flat)
        legends = [draw(axes, runs) for draw, axes in zip(chosen, places, strict=False)]
        for axes in places[len(chosen) :]:
            axes.remove()
        _name_runs(figure, runs)
        figure.notes = runs.notes
        settle(figure, legends, " ".join(figure.notes))
    drawn: Figure = figure
    return drawn


def _name_runs(figure: Figure, runs: Runs) -> None:
    """Name the runs once, above all plots."""
    from matplotlib.lines import Line2D

    labels = [elide(safe(name), _MAX_NAME_CELLS) for name in runs.tables]
    if len(labels) == 1:
        if labels[0]:
            figure.suptitle(labels[0], fontsize=TITLE, color=FAINT, x=0.01, ha="left", parse_math=False)
        return
    handles = [Line2D([], [], color=runs.color(name), linewidth=2.5) for name in runs.tables]
    fitting = int(17.0 * figure.get_figwidth() / (max(map(cells, labels)) + 6))
    legend = figure.legend(
        handles, labels, loc="outside upper left", ncols=max(1, min(len(labels), fitting)), frameon=False,
        fontsize=TEXT, handlelength=1.2,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _draw_loss(axes: Axes, runs: Runs) -> Legend:
    """Draw the loss, below it in depth the validation loss, and lr on a second axis."""
    names = _losses(runs)
    for at, name in enumerate(names):
        for run, line in runs.lines(name):
            color = runs.color(run) if len(names) == 1 else COLORS[at]
            _draw_line(axes, line, color, runs, label=safe(name))
    for run, line in runs.lines("val_loss"):
        color = runs.color(run) if len(runs.tables) > 1 else "#d55e00"
        axes.plot(
            line.index, line["mean"], "D--", color=color, markersize=3, linewidth=0.8, markerfacecolor="none",
            markeredgewidth=0.7, markevery=-(-len(line) // 12), zorder=1.9, label="validation loss",
        )  # fmt: skip
    _finish(axes, runs, "Loss", "loss")
    if not runs.has("lr"):
        return legend_of(axes)
    right = axes.twinx()
    for run, line in runs.lines("lr"):
        color = FAINT if len(runs.tables) == 1 else runs.color(run)
        right.plot(line.index, line["mean"], ":", color=color, linewidth=0.9, label="lr (right)", zorder=1)
    right.set_ylabel("lr", color=FAINT)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    right.tick_params(colors=FAINT)
    right.spines["top"].set_visible(False)
    right.set_ylim(0, None if runs.has("lr", above=0) else 1)
    return legend_of(axes, right)


def _draw_throughput(axes: Axes, runs: Runs) -> Legend:
    """Draw the throughput; records below the run's P10 are red."""
    label = "below P10"
    for run, line in runs.lines(runs.rate):
        _draw_line(axes, line, runs.color(run), runs, label="throughput")
        rate = line["mean"]
        slow = rate[rate < rate.quantile(0.1)] if len(rate) >= 10 else rate[:0]
        axes.plot(slow.index, slow, ".", color=RED, label=label if len(slow) else "_", markersize=3, zorder=1.95)
        label = "_"
    _finish(axes, runs, "Throughput", RATES[runs.rate], from_zero=True)
    return legend_of(axes)


def _draw_step_time(axes: Axes, runs: Runs) -> Legend:
    """Draw the step time, and below it the time of waiting for data."""
    lines = runs.lines("step_time_s")
    typical = max(float(line["mean"].quantile(0.75)) for _, line in lines)
    scale, unit = (1.0, "s") if typical >= 1 else (1e3, "ms")
    for run, line in lines:
        _draw_line(axes, line * scale, runs.color(run), runs, label="step")
    for run, line in runs.lines("data_time"):
        color = runs.color(run) if len(runs.tables) > 1 else COLORS[1]
        _draw_line(axes, line * scale, color, runs, label="waiting for data", linestyle="--")
    _finish(axes, runs, "Step time", unit, from_zero=True)
    most = scale * max(float(line["mean"].max()) for _, line in lines)
    if most > 3 * scale * typical > 0:
        axes.set_ylim(0, 3 * scale * typical)
        axes.set_title(f"up to {most:.3g} {unit}", loc="right", fontsize=SMALL, color=FAINT)
    return legend_of(axes)


def _draw_column(
    axes: Axes, runs: Runs, name: str, title: str = "", y_label: str = "", label: str = "_", from_zero: bool = False
) -> Legend:
    """Draw one column."""
    for run, line in runs.lines(name):
        _draw_line(axes, line, runs.color(run), runs, label=label)
    _finish(axes, runs, title or elide(safe(name), _MAX_NAME_CELLS), y_label, from_zero=from_zero)
    if y_label == "%":
        axes.set_ylim(0, 103)
    return legend_of(axes)


def _draw_timers(axes: Axes, runs: Runs) -> Legend:
    """Draw the longest names of the first run's timing log."""
    table = next(iter(runs.tables.values()))
    names = [name for name in table if str(name).endswith(_TIMER_SUFFIX) and name != f"other{_TIMER_SUFFIX}"]
    for at, name in enumerate(sorted(names, key=lambda name: -float(table[name].mean()))[:6]):
        for _, line in runs.lines(name)[:1]:
            label = safe(str(name).removesuffix(_TIMER_SUFFIX))
            marker = "." if len(line) < 40 else None
            axes.plot(line.index, line["mean"], color=COLORS[at], linewidth=1.1, marker=marker, label=label)
    _finish(axes, runs, "Time by name", "ms", from_zero=True)
    return legend_of(axes)


def _draw_gpu_boxes(axes: Axes, runs: Runs) -> Legend:
    """Draw a box per GPU: median, quartiles, whiskers to P5 and P95."""
    at, ticks, labels = 0, [], []
    for run, table in runs.tables.items():
        names = [str(name) for name in table if str(name).startswith("gpu_util_") and table[name].notna().any()]
        for name in names or ["gpu_util"] * ("gpu_util" in table):
            low, first, middle, third, high = table[name].quantile([0.05, 0.25, 0.5, 0.75, 0.95])
            color = runs.color(run)  # by hand: Axes.boxplot loads pyplot, and with it a backend
            axes.bar(at, third - first, 0.6, bottom=first, color=color, alpha=0.35)
            axes.vlines([at, at], [low, third], [first, high], color=color, linewidth=0.9)
            axes.hlines([low, high], at - 0.15, at + 0.15, color=color, linewidth=0.9)
            axes.hlines(middle, at - 0.3, at + 0.3, color=INK, linewidth=1.2)
            ticks.append(at)
            labels.append(name.removeprefix("gpu_util_") if name != "gpu_util" else "all")
            at += 1
        at += 1
    axes.set_xticks(ticks, labels)
    _style(axes, "GPU utilisation by GPU", "%")
    axes.set_xlabel("GPU (box: quartiles, whiskers: P5 to P95)")
    axes.set_ylim(0, 103)
    return legend_of(axes)


def _draw_utilisation_bound(axes: Axes, runs: Runs) -> Legend:
    """Draw an upper bound of the utilisation, if none was logged: the share of the step that does not wait for data."""
    tables = {}
    for run, table in runs.tables.items():
        if {"data_time", "step_time_s"} <= set(table):
            share = 1 - table["data_time"] / table["step_time_s"].where(table["step_time_s"] > 0)
            tables[run] = table.assign(_share=100 * share.clip(0, 1))
    formula = "1 − waiting for data / step time"
    runs.notes.append(f"Utilisation was not logged; the estimate is {formula}: an upper bound.")
    title = "Utilisation, estimate (none logged)"
    return _draw_column(axes, replace(runs, tables=tables), "_share", title, "%", formula)


def _draw_throughput_by_batch(axes: Axes, runs: Runs) -> Legend:
    """Draw the throughput over batch size / step time, which are equal if all time is in steps."""
    most = 0.0
    for run, table in runs.tables.items():
        if {"throughput", "batch_size", "step_time_s"} <= set(table):
            ideal = table["batch_size"] / table["step_time_s"].where(table["step_time_s"] > 0)
            color = runs.color(run)
            axes.plot(ideal, table["throughput"], ".", color=color, markersize=3, alpha=0.55, markeredgewidth=0)
            most = max(most, float(ideal.max()), float(table["throughput"].max()))
    axes.plot([0, most], [0, most], color=FAINT, linewidth=0.8, linestyle="--", label="equal")
    _style(axes, "Throughput vs batch size / step time", RATES["throughput"])
    axes.set_xlabel("batch size / step time (samples/s)")
    axes.set_xlim(0)
    axes.set_ylim(0)
    return legend_of(axes)


def _draw_line(axes: Axes, line: pd.DataFrame, color: str, runs: Runs, label: str = "_", linestyle: str = "-") -> None:
    """Draw the values pale and their moving average strong; few values are drawn alone. The range is a shade."""
    count, window = len(line), runs.window
    if window is None:
        window = max(5, count // 100) if count >= 24 else 1
    if (line["max"] > line["min"]).any():
        axes.fill_between(line.index, line["min"], line["max"], color=color, alpha=0.15, linewidth=0)
    if window <= 1:
        marker = "o" if count <= 40 else None
        axes.plot(
            line.index, line["mean"], color=color, linewidth=1.3, label=label, linestyle=linestyle, marker=marker,
            markersize=2.6,
        )  # fmt: skip
        return
    axes.plot(line.index, line["mean"], color=color, linewidth=0.6, alpha=0.35, zorder=1.8)
    smooth = line["mean"].rolling(window, min_periods=1, center=True).mean()
    text = label if label == "_" or len(runs.tables) > 1 else f"{label}, mean of {window}"
    axes.plot(line.index, smooth, color=color, linewidth=1.5, linestyle=linestyle, label=text)


def _finish(axes: Axes, runs: Runs, title: str, y_label: str, *, from_zero: bool = False) -> None:
    _style(axes, title, y_label)
    axes.set_xlabel(runs.x_label)
    if axes.dataLim.width == 0 and np.isfinite(axes.dataLim.x0):  # one record
        axes.set_xticks([axes.dataLim.x0])
    elif runs.x == "step":
        axes.locator_params(axis="x", integer=True)
    if from_zero:
        most = axes.dataLim.ymax  # autoscaling leaves no margin above values that differ little
        axes.set_ylim(0, 1.06 * most if np.isfinite(most) and most > 1e-12 else 1)


def _style(axes: Axes, title: str, y_label: str) -> None:
    set_title(axes, title)
    axes.set_ylabel(y_label)
    bare(axes)
    axes.ticklabel_format(axis="y", useOffset=False)
    if not 1e-3 <= max(map(abs, axes.get_ylim())) < 1e6:  # an exponent of the axis would stand where the legend is
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.6g}")


_draw_gpu = partial(_draw_column, name="gpu_util", title="GPU utilisation, mean of all GPUs", y_label="%")
_draw_norm = partial(_draw_column, name="grad_norm", title="Gradient norm", y_label="norm", from_zero=True)
_draw_memory = partial(_draw_column, name="memory", title="Memory", y_label="GiB", from_zero=True)
PLOTS: Final[Mapping[str, _Plot]] = {
    "loss": _Plot(_draw_loss, lambda runs: runs.has("val_loss") or bool(_losses(runs)), is_expected=True),
    "throughput": _Plot(_draw_throughput, lambda runs: runs.has(runs.rate), is_expected=True),
    "step time": _Plot(_draw_step_time, partial(Runs.has, name="step_time_s"), is_expected=True),
    "throughput by batch": _Plot(
        _draw_throughput_by_batch,
        lambda runs: runs.has("throughput") and runs.has("batch_size") and runs.has("step_time_s", above=0),
    ),
    "GPU utilisation": _Plot(_draw_gpu, partial(Runs.has, name="gpu_util"), is_expected=True),
    "utilisation by GPU": _Plot(_draw_gpu_boxes, partial(Runs.has, name="gpu_util")),
    "estimated utilisation": _Plot(
        _draw_utilisation_bound,
        lambda runs: not runs.has("gpu_util") and runs.has("data_time") and runs.has("step_time_s", above=0),
    ),
    "gradient norm": _Plot(_draw_norm, partial(Runs.has, name="grad_norm"), is_expected=True),
    "memory": _Plot(_draw_memory, partial(Runs.has, name="memory"), is_expected=True),
    "time by name": _Plot(
        _draw_timers, lambda runs: any(str(name).endswith(_TIMER_SUFFIX) for name in next(iter(runs.tables.values())))
    ),
}
"""All plots, in the order of the figure."""
