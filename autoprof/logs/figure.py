"""``plot_metrics``: the figure of one training run, or of several over each other. It does not use pyplot."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .._reports.figures import (
    FAINT,
    ONE_COLUMN_IN,
    TEXT,
    TITLE,
    TWO_COLUMNS_IN,
    Legend,
    blank_figure,
    encode_figure,
    save_figure,
    settle,
    styled,
)  # fmt: skip
from .._reports.fonts import Script, script_for
from .._reports.text import cells, elide
from ..errors import AutoprofError, nearest
from . import panels
from .series import COLORS, Runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTPUT: Final = "training_metrics.png"
X_COLUMNS: Final = {"step": "step", "time": "elapsed_s", "tokens": "tokens"}
"""The column of each x axis."""
HEIGHT_IN: Final = 2.35
"""Of one plot."""
RUN_CELLS: Final = 46
"""Cells of a run's name in one column."""
CELLS_PER_IN: Final = 17.0
"""Characters of the runs' names on an inch."""
MAX_RUNS: Final = len(COLORS)
"""Runs with a colour of their own; further ones are not drawn."""
_Plot = Callable[["Axes", Runs], Legend]
PLOTS: Final[Mapping[str, _Plot]] = {
    "loss": panels.draw_loss,
    "throughput": panels.draw_throughput,
    "step time": panels.draw_step_time,
    "throughput by step time": panels.draw_throughput_by_step_time,
    "utilisation": panels.draw_gpu_mean,
    "utilisation by GPU": panels.draw_gpu_boxes,
    "estimated utilisation": panels.draw_estimated_utilisation,
    "gradient norm": panels.draw_grad_norm,
    "memory": panels.draw_memory,
    "time by name": panels.draw_timers,
}
"""All plots, in the order of the figure."""
OTHER_COLUMNS: Final = "other columns"
"""The plots of columns whose names are not known, one each."""
MAX_OTHER_COLUMNS: Final = 6
"""Columns of unknown names with a plot each; beside the plots of a training two less, or one to fill a row."""
_MAX_NAMED_COLUMNS: Final = 12
_NAMED_IF_MISSING: Final = ("lr", "loss", "throughput", "step time", "utilisation", "gradient norm", "memory")
"""Columns that a training log usually has; the figure names those that are missing."""


def plot_metrics(
    df: pd.DataFrame, output: str | os.PathLike[str] | None = OUTPUT, *, x: str = "step", smooth: int | None = None,
    plots: Collection[str] = (), columns: Collection[str] = (), show: bool = False,
) -> Figure:  # fmt: skip
    """Draw a table of ``load_logs`` and save the figure.

    Args:
        df: the table, or any DataFrame with columns such as ``loss`` and ``throughput``.
        output: the file (.png, .svg, .pdf); None saves nothing.
        x: ``step``, ``time`` or ``tokens``.
        smooth: records of the moving average; 1 for none, None for a hundredth of the records.
        plots: only these, of ``loss``, ``throughput``, ``step time`` and the others in ``PLOTS``; one alone is as wide
            as one column of a paper.
        columns: only these columns of the log, whatever their names, in addition to ``plots``.
        show: whether to open a window. A notebook displays the returned figure without it.

    Returns:
        The figure. Its ``notes`` name the plots that were omitted because their column is missing.

    Raises:
        AutoprofError: nothing to draw, an unknown axis or format, or a file that cannot be written.
    """
    if not len(df):
        raise AutoprofError("plot_metrics: the table is empty; allowed: a table of load_logs with at least one row")
    runs, notes = _make_runs(df, x, smooth)
    chosen, missing = _choose_plots(runs, check_plots(plots)) if plots or not columns else ([], [])
    most = MAX_OTHER_COLUMNS - 2 * bool(chosen)
    drawn, further = _choose_columns(runs, plots, columns, most + (len(chosen) + most) % 2)  # two plots in each row
    chosen, missing = chosen + drawn, missing + further
    if not chosen:
        names = ", ".join(str(name) for name in df.columns)
        raise AutoprofError(f"plot_metrics: nothing to draw in the columns {names}; allowed: a column of numbers")
    figure = _draw(runs, chosen, missing + notes)
    if output is not None:
        save_figure(figure, output)
    if show:
        _open_window(figure)
    return figure


def _make_runs(df: pd.DataFrame, x: str, smooth: int | None) -> tuple[Runs, list[str]]:
    """Return the runs of the table, with their x axis, and notes about them."""
    if x not in X_COLUMNS:
        raise AutoprofError(f"x: {x!r} is not an axis; {nearest(x, X_COLUMNS)}")
    table = df if "step" in df else df.assign(step=range(1, len(df) + 1))
    names = list(dict.fromkeys(table["run"].astype(str))) if "run" in table else [""]
    tables = {name: table[table["run"].astype(str) == name] for name in names} if "run" in table else {"": table}
    has_ranks = any("rank" in part and part["rank"].nunique() > 1 for part in tables.values())
    notes = ["Lines and bars are means over the ranks, shades and thin lines their range."] if has_ranks else []
    notes += [f"{len(names) - MAX_RUNS} more runs are not drawn."] if len(names) > MAX_RUNS else []
    tables = dict(list(tables.items())[:MAX_RUNS])
    column = X_COLUMNS[x]
    if column not in table or not table[column].notna().any():
        raise AutoprofError(f"x: {x!r} is not in the log; allowed: 'step'")
    label, unit = _label_x(x, float(table[column].max()))
    script = script_for([*names, *map(str, table.columns)])
    return Runs(tables, column, label, unit, smooth, script.show, []), notes


def _label_x(x: str, largest: float) -> tuple[str, float]:
    """Return the label of the x axis and its unit in the unit of the column."""
    if x == "time":
        seconds, unit = (3600.0, "h") if largest > 2 * 3600 else (60.0, "min") if largest > 120 else (1.0, "s")
        return f"time since the start ({unit})", seconds
    if x == "tokens" and largest > 2e6:
        tokens, unit = (1e9, "billions") if largest > 2e9 else (1e6, "millions")
        return f"tokens ({unit})", tokens
    return x, 1.0


def check_plots(plots: Collection[str]) -> Collection[str]:
    """Return the plots. Raises ``AutoprofError`` for one that does not exist."""
    allowed = [*PLOTS, OTHER_COLUMNS]
    unknown = [plot for plot in plots if plot not in allowed]
    if unknown:
        raise AutoprofError(f"plots: {unknown[0]!r} is not a plot; {nearest(unknown[0], allowed)}")
    return plots


def _choose_columns(
    runs: Runs, plots: Collection[str], columns: Collection[str], most: int
) -> tuple[list[_Plot], list[str]]:
    """Return the plots of the wanted columns, or of all whose names are not known, and a note that names the rest."""
    for name in columns:
        if not runs.has(name):
            known = sorted({str(column) for table in runs.tables.values() for column in table.select_dtypes("number")})
            raise AutoprofError(f"columns: {name!r} is not a column of numbers in the log; {nearest(name, known)}")
    others = panels.other_columns(runs) if OTHER_COLUMNS in plots or not (plots or columns) else []
    varying = [name for name in others if runs.varies(name)] or others
    shown = varying[:most]
    rest = [name for name in others if name not in shown]
    notes = [f"Not drawn (--column NAME draws one): {_list_names(rest, runs)}."] if rest else []
    return [partial(panels.draw_column, name=name) for name in dict.fromkeys([*columns, *shown])], notes


def _list_names(names: Collection[str], runs: Runs) -> str:
    shown = [elide(runs.show(name), RUN_CELLS) for name in list(names)[:_MAX_NAMED_COLUMNS]]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _choose_plots(runs: Runs, wanted: Collection[str]) -> tuple[list[_Plot], list[str]]:
    """Return the plots that the columns allow, all or the wanted ones, and a note that names the missing ones."""
    has_rate = runs.has("throughput") or runs.has("tokens_per_s")
    has_time = runs.has_positive("step_time_s")
    can_estimate = runs.has_positive(runs.rate) or (runs.has("data_time") and has_time)
    has_loss = runs.has("loss") or runs.has("val_loss") or bool(panels.other_losses(runs))
    can_draw = {
        "loss": has_loss,
        "throughput": has_rate,
        "step time": runs.has("step_time_s"),
        "throughput by step time": has_rate and has_time,
        "utilisation": runs.has("gpu_util"),
        "utilisation by GPU": runs.has("gpu_util") and panels.has_gpu_columns(runs),
        "estimated utilisation": not runs.has("gpu_util") and can_estimate,
        "gradient norm": runs.has("grad_norm"),
        "memory": runs.has("memory"),
        "time by name": panels.has_timers(runs),
    }
    can_name = {**can_draw, "lr": runs.has("lr"), OTHER_COLUMNS: bool(panels.other_columns(runs))}
    has_any = any(can_draw[name] for name in can_draw if name != "time by name")  # else it is no log of a training
    asked = [name for name in (wanted or (_NAMED_IF_MISSING if has_any else ())) if not can_name[name]]
    shown = ["GPU utilisation" if name == "utilisation" else name for name in asked]
    notes = [f"Not in the log, so not drawn: {', '.join(shown)}."] if shown else []
    return [draw for name, draw in PLOTS.items() if can_draw[name] and (not wanted or name in wanted)], notes


def _draw(runs: Runs, chosen: list[_Plot], notes: list[str]) -> Figure:
    script = script_for([*runs.tables, *(str(name) for table in runs.tables.values() for name in table)])
    columns = 1 if len(chosen) == 1 else 2
    rows = -(-len(chosen) // columns)
    with styled(script):
        width = TWO_COLUMNS_IN if columns == 2 else ONE_COLUMN_IN
        figure: Any = blank_figure(width, HEIGHT_IN * rows + 0.45, _figure_class())
        places = list(figure.subplots(rows, columns, squeeze=False).flat)
        legends = [draw(axes, runs) for draw, axes in zip(chosen, places, strict=False)]
        for axes in places[len(chosen) :]:
            axes.remove()
        _name_runs(figure, runs, script, columns)
        figure.notes = [*notes, *runs.notes, *([script.note] if script.note else [])]
        settle(figure, legends, " ".join(figure.notes))
    drawn: Figure = figure
    return drawn


def _name_runs(figure: Figure, runs: Runs, script: Script, columns: int) -> None:
    """Name the runs once, above all plots."""
    from matplotlib.lines import Line2D

    if len(runs.tables) < 2:
        name = next(iter(runs.tables))
        if name:
            shown = elide(script.show(name), RUN_CELLS * columns)
            figure.suptitle(shown, fontsize=TITLE, color=FAINT, x=0.01, ha="left", parse_math=False)
        return
    handles = [Line2D([], [], color=COLORS[at % len(COLORS)], linewidth=2.5) for at in range(len(runs.tables))]
    labels = [elide(script.show(name), RUN_CELLS) for name in runs.tables]
    fitting = int(CELLS_PER_IN * figure.get_figwidth() / (max(map(cells, labels)) + 6))
    legend = figure.legend(
        handles, labels, loc="outside upper left", ncols=max(1, min(len(labels), fitting)), frameon=False,
        fontsize=TEXT, handlelength=1.2,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _figure_class() -> Any:
    """Return a figure class that a notebook displays without pyplot, with ``notes``."""
    from matplotlib.figure import Figure

    class MetricsFigure(Figure):
        """The figure of ``plot_metrics``; ``notes`` are the sentences below it."""

        notes: list[str]

        def _repr_png_(self) -> bytes:
            return encode_figure(self)

    return MetricsFigure


def _open_window(figure: Figure) -> None:
    """Open the figure in a window. Raises ``AutoprofError`` without a screen."""
    import matplotlib.pyplot as plt

    manager = plt.figure().canvas.manager
    if manager is None or plt.get_backend().lower() == "agg":
        plt.close()
        raise AutoprofError("show: no screen is available; save the figure instead: output='figure.png'")
    manager.canvas.figure = figure
    figure.set_canvas(manager.canvas)
    plt.show()
