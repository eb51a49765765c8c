"""``plot_metrics``: the figure of one training run, or of several over each other. It does not use pyplot."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._reports.figures import (
    FAINT,
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
    names: list[str]
    """The columns with a finite number."""
    window: int | None
    """Records of the moving average, 1 for none; None: a hundredth of the records."""
    notes: list[str] = field(default_factory=list)

    def color(self, run: str) -> str:
        """Return the colour of a run, the same in every plot."""
        return COLORS[list(self.tables).index(run)]

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


@dataclass(frozen=True, slots=True)
class _Plot:
    """One plot over the x axis."""

    title: str
    unit: str
    find: Callable[[Runs], list[str]]
    """Return the columns to draw, none where the log lacks them."""
    from_zero: bool = True
    is_expected: bool = True
    """Whether a training log usually has its columns."""
    add: Callable[[Axes, Runs, list[str]], list[Axes]] = lambda axes, runs, columns: []
    """Draw something more; return the further axes."""


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
        plots: only these plots (``loss``, ``step time``, …) or columns; one alone is as wide as a column of a paper.

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
    numbers = table.select_dtypes("number")
    columns = [str(name) for name in numbers if np.isfinite(numbers[name]).any()]
    return Runs(dict(list(tables.items())[: len(COLORS)]), column, label, unit, columns, smooth, notes)


def _choose_plots(runs: Runs, wanted: Collection[str]) -> list[tuple[_Plot, list[str]]]:
    """Return the plots that the columns allow, all or the wanted ones, with their columns; add notes on the others."""
    max_other_columns = 6
    found = {name: (plot, plot.find(runs)) for name, plot in PLOTS.items()}
    missing = [name for name, (plot, columns) in found.items() if not columns and plot.is_expected]
    possible = {name: entry for name, entry in found.items() if entry[1]}
    if wanted:
        allowed = [*PLOTS, *runs.names]
        unknown = next((name for name in wanted if name not in allowed), None)
        if unknown is not None:
            raise AutoprofError(f"plots: {unknown!r} is no plot and no column of numbers; {nearest(unknown, allowed)}")
        missing = [name for name in wanted if name in PLOTS and name not in possible]
        chosen = [possible.get(name) or _plot_of(name) for name in dict.fromkeys(wanted) if name not in missing]
    else:
        drawn = {column for _, columns in possible.values() for column in columns}
        others = [name for name in _other_columns(runs) if name not in drawn]
        chosen = [*possible.values(), *map(_plot_of, others[:max_other_columns])]
        missing = missing if possible else []  # else it is no log of a training
        if len(others) > max_other_columns:
            rest = ", ".join(elide(safe(name), _MAX_NAME_CELLS) for name in others[max_other_columns:])
            runs.notes.insert(0, f"Not drawn (--plot NAME draws one): {elide(rest, 400)}.")
    if missing:
        runs.notes.insert(0, f"Not in the log, so not drawn: {', '.join(missing)}.")
    return chosen


def _plot_of(name: str) -> tuple[_Plot, list[str]]:
    """Return the plot of one column."""
    return _Plot(elide(safe(name), _MAX_NAME_CELLS), "", _columns(name), from_zero=False), [name]


def _columns(first: str, *others: str) -> Callable[[Runs], list[str]]:
    """Return a function that finds these columns, or none where the first is missing."""
    return lambda runs: [name for name in (first, *others) if name in runs.names] if first in runs.names else []


def _losses(runs: Runs) -> list[str]:
    """Return the loss and the validation loss; without a loss others such as ``loss_bbox``."""
    others = [name for name in runs.names if name not in FIELDS and is_loss(name)][:4]
    return (["loss"] if "loss" in runs.names else others) + ["val_loss"] * ("val_loss" in runs.names)


def _rate(runs: Runs) -> list[str]:
    """Return the column of the throughput: samples if logged, else tokens."""
    return [name for name in RATES if name in runs.names][:1]


def _utilisation(runs: Runs) -> list[str]:
    """Return the utilisation of each GPU; where only their mean was logged, the mean."""
    return [name for name in runs.names if re.fullmatch(r"gpu_util_\d+", name)] or _columns("gpu_util")(runs)


def _timers(runs: Runs) -> list[str]:
    """Return the longest names of the first run's timing log."""
    table = next(iter(runs.tables.values()))
    names = [name for name in runs.names if name.endswith(_TIMER_SUFFIX) and name in table]
    longest = sorted(names, key=lambda name: -float(table[name].mean()))
    return [name for name in longest if name != f"other{_TIMER_SUFFIX}"][:6]


def _other_columns(runs: Runs) -> list[str]:
    """Return the columns of unknown names without those of timers, first those that vary."""
    names = dict.fromkeys(name for table in runs.tables.values() for name in unknown_columns(table))
    return sorted(
        (name for name in names if not name.endswith(_TIMER_SUFFIX)),
        key=lambda name: all(table[name].nunique() < 2 for table in runs.tables.values() if name in table),
    )


def _draw(runs: Runs, chosen: list[tuple[_Plot, list[str]]]) -> Figure:
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
        legends = [_draw_plot(axes, runs, *entry) for entry, axes in zip(chosen, places, strict=False)]
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


def _draw_plot(axes: Axes, runs: Runs, plot: _Plot, columns: list[str]) -> Legend:
    """Draw the columns of a plot: a colour for each, or for each run of several, with a line style for each column."""
    from matplotlib.ticker import EngFormatter

    labels = {"val_loss": "validation loss", "step_time_s": "step", "data_time": "waiting for data"}
    is_single = len(runs.tables) == 1
    typical = most = 0.0
    for at, name in enumerate(columns):
        label = labels.get(name, safe(name.removesuffix(_TIMER_SUFFIX))) if plot in PLOTS.values() else "_"
        style = "-" if is_single else ("-", "--", ":", "-.")[at % 4]
        for run, line in runs.lines(name):
            _draw_line(axes, line, COLORS[at % len(COLORS)] if is_single else runs.color(run), runs, label, style)
            typical = max(typical, float(line["mean"].quantile(0.75)))
            most = max(most, float(line["mean"].max()))
    set_title(axes, plot.title)
    axes.set_ylabel(plot.unit)
    axes.set_xlabel(runs.x_label)
    bare(axes)
    axes.ticklabel_format(axis="y", useOffset=False)
    if axes.dataLim.width == 0 and np.isfinite(axes.dataLim.x0):  # one record
        axes.set_xticks([axes.dataLim.x0])
    elif runs.x == "step":
        axes.locator_params(axis="x", integer=True)
    if plot.from_zero:
        is_cut = most > 3 * typical > 0  # a step that compiles would leave no height to the others
        axes.set_ylim(0, 3 * typical if is_cut else 1.06 * most if most > 1e-12 else 1)
        axes.set_title(f"up to {most:.3g} {plot.unit}" if is_cut else "", loc="right", fontsize=SMALL, color=FAINT)
    if plot.unit == "s":
        axes.yaxis.set_major_formatter(EngFormatter("s"))
    elif not 1e-3 <= max(map(abs, axes.get_ylim())) < 1e6:  # an exponent of the axis would stand where the legend is
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.6g}")
    return legend_of(axes, *plot.add(axes, runs, columns))


def _add_lr(axes: Axes, runs: Runs, columns: list[str]) -> list[Axes]:
    """Draw lr on a second axis."""
    lines = runs.lines("lr")
    if not lines:
        return []
    right = axes.twinx()
    for run, line in lines:
        color = FAINT if len(runs.tables) == 1 else runs.color(run)
        right.plot(line.index, line["mean"], ":", color=color, linewidth=0.9, label="lr (right)", zorder=1)
    right.set_ylabel("lr", color=FAINT)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    right.tick_params(colors=FAINT)
    right.spines["top"].set_visible(False)
    right.set_ylim(0)
    return [right]


def _mark_slow(axes: Axes, runs: Runs, columns: list[str]) -> list[Axes]:
    """Mark the records below the run's P10, and name the unit of the rate."""
    label = "below P10"
    for _, line in runs.lines(columns[0]):
        rate = line["mean"]
        slow = rate[rate < rate.quantile(0.1)] if len(rate) >= 10 else rate[:0]
        axes.plot(slow.index, slow, ".", color=RED, label=label if len(slow) else "_", markersize=3, zorder=1.95)
        label = "_"
    axes.set_ylabel(RATES[columns[0]])
    return []


def _draw_line(axes: Axes, line: pd.DataFrame, color: str, runs: Runs, label: str, linestyle: str) -> None:
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


PLOTS: Final[Mapping[str, _Plot]] = {
    "loss": _Plot("Loss", "loss", _losses, from_zero=False, add=_add_lr),
    "throughput": _Plot("Throughput", "", _rate, add=_mark_slow),
    "step time": _Plot("Step time", "s", _columns("step_time_s", "data_time")),
    "GPU utilisation": _Plot("GPU utilisation", "%", _utilisation),
    "gradient norm": _Plot("Gradient norm", "norm", _columns("grad_norm")),
    "memory": _Plot("Memory", "GiB", _columns("memory")),
    "time by name": _Plot("Time by name", "ms", _timers, is_expected=False),
}
"""All plots, in the order of the figure."""
