"""``plot_metrics``: the figure of one training run, or of several over each other. It does not use pyplot."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .._reports.figures import FAINT, INK, styled
from .._reports.fonts import Script, script_for
from .._reports.text import elide
from ..errors import AutoprofError, OutputError, nearest
from . import panels
from .series import COLORS, Runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTPUT: Final = "training_metrics.png"
FORMATS: Final = ("png", "svg", "pdf")
X_COLUMNS: Final = {"step": "step", "time": "elapsed_s", "tokens": "tokens"}
"""The column of each x axis."""
WIDTH_IN: Final = 7.2
"""Two columns of a paper. Each plot is one column wide, its text 7 to 8 points high."""
HEIGHT_IN: Final = 2.35
"""Of one plot."""
DPI: Final = 200
MAX_RUNS: Final = len(COLORS)
"""Runs with a colour of their own; further ones are not drawn."""
_STYLE: Final[Any] = {
    "font.size": 7.5, "axes.labelsize": 7.5, "xtick.labelsize": 7, "ytick.labelsize": 7, "axes.labelcolor": INK,
    "text.color": INK,
    "axes.edgecolor": "#999999", "xtick.color": INK, "ytick.color": INK, "axes.linewidth": 0.7,
    "svg.fonttype": "path", "pdf.fonttype": 42,
}  # fmt: skip


def plot_metrics(
    df: pd.DataFrame, output: str | os.PathLike[str] | None = OUTPUT, *, x: str = "step", smooth: int | None = None,
    show: bool = False,
) -> Figure:  # fmt: skip
    """Draw a table of ``load_logs`` and save the figure.

    Args:
        df: the table, or any DataFrame with columns such as ``loss`` and ``throughput``.
        output: the file (.png, .svg, .pdf); None saves nothing.
        x: ``step``, ``time`` or ``tokens``.
        smooth: records of the moving average; 1 for none, None for a hundredth of the records.
        show: whether to open a window. A notebook displays the returned figure without it.

    Returns:
        The figure. Its ``notes`` name the plots that were omitted because their column is missing.

    Raises:
        AutoprofError: nothing to draw, an unknown axis or format, or a file that cannot be written.
    """
    if not len(df):
        raise AutoprofError("plot_metrics: the table is empty; allowed: a table of load_logs with at least one row")
    runs, notes = _make_runs(df, x, smooth)
    chosen, missing = _choose_plots(runs)
    if not chosen:
        columns = ", ".join(str(name) for name in df.columns)
        raise AutoprofError(
            f"plot_metrics: nothing to draw in the columns {columns}; allowed: loss, throughput, step_time_s, …"
        )
    figure = _draw(runs, chosen, missing + notes)
    if output is not None:
        _save(figure, output)
    if show:
        _open_window(figure)
    return figure


def _save(figure: Figure, output: str | os.PathLike[str]) -> None:
    """Write the figure in the format of the file's name."""
    path = os.fspath(output)
    suffix = os.path.splitext(path)[1].lstrip(".").lower()
    if suffix not in FORMATS:
        problem = f"{suffix!r} is not a format of figures" if suffix else "the name has no format"
        raise OutputError(f"{path}: {problem}; {nearest(suffix, FORMATS)}")
    try:
        figure.savefig(path, dpi=DPI, metadata={"Date": None} if suffix == "svg" else None)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written: {error.strerror}; allowed: a file in a writable folder"
        ) from error


def _make_runs(df: pd.DataFrame, x: str, smooth: int | None) -> tuple[Runs, list[str]]:
    """Return the runs of the table, with their x axis, and notes about them."""
    if x not in X_COLUMNS:
        raise AutoprofError(f"x: {x!r} is not an axis; {nearest(x, X_COLUMNS)}")
    table = df if "step" in df else df.assign(step=range(1, len(df) + 1))
    names = list(dict.fromkeys(table["run"].astype(str))) if "run" in table else [""]
    tables = {name: table[table["run"].astype(str) == name] for name in names} if "run" in table else {"": table}
    has_ranks = any("rank" in part and part["rank"].nunique() > 1 for part in tables.values())
    notes = ["A line is the mean over the ranks, its shade their range."] if has_ranks else []
    notes += [f"{len(names) - MAX_RUNS} more runs are not drawn."] if len(names) > MAX_RUNS else []
    tables = dict(list(tables.items())[:MAX_RUNS])
    column = X_COLUMNS[x]
    if column not in table or not table[column].notna().any():
        raise AutoprofError(f"x: {x!r} is not in the log; allowed: 'step'")
    label, unit = _label_x(x, float(table[column].max()))
    script = script_for("".join([*names, *(str(name) for name in table.columns)]))
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


def _choose_plots(runs: Runs) -> tuple[list[Callable[[Axes, Runs], None]], list[str]]:
    """Return the plots that the columns allow, and a note that names the missing ones."""
    has_rate = runs.has("throughput") or runs.has("tokens_per_s")
    can_estimate = has_rate or (runs.has("data_time") and runs.has("step_time_s"))
    has_loss = runs.has("loss") or runs.has("val_loss") or bool(panels.other_losses(runs))
    plots: list[tuple[str, bool, Callable[[Axes, Runs], None]]] = [
        ("loss", has_loss, panels.draw_loss),
        ("throughput", has_rate, panels.draw_throughput),
        ("step time", runs.has("step_time_s"), panels.draw_step_time),
        ("", has_rate and runs.has("step_time_s"), panels.draw_throughput_by_step_time),
        ("GPU utilisation", runs.has("gpu_util"), panels.draw_gpu_mean),
        ("", runs.has("gpu_util") and panels.has_gpu_columns(runs), panels.draw_gpu_boxes),
        ("", not runs.has("gpu_util") and can_estimate, panels.draw_estimated_utilisation),
        ("gradient norm", runs.has("grad_norm"), panels.draw_grad_norm),
        ("memory", runs.has("memory"), panels.draw_memory),
        ("", panels.has_timers(runs), panels.draw_timers),
    ]
    missing = [name for name, can_draw, _ in plots if name and not can_draw]
    if not runs.has("lr"):
        missing.insert(0, "lr")
    notes = [f"Not in the log, so not drawn: {', '.join(missing)}."] if missing else []
    return [draw for _, can_draw, draw in plots if can_draw], notes


def _draw(runs: Runs, chosen: list[Callable[[Axes, Runs], None]], notes: list[str]) -> Figure:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    script = script_for("".join([*runs.tables, *(str(name) for table in runs.tables.values() for name in table)]))
    columns = 1 if len(chosen) == 1 else 2
    rows = -(-len(chosen) // columns)
    with styled(script), mpl.rc_context(_STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, hspace=0.03, wspace=0.03)
        size = (WIDTH_IN if columns == 2 else WIDTH_IN / 2 + 0.8, HEIGHT_IN * rows + 0.45)
        figure: Any = _figure_class()(figsize=size, dpi=DPI, layout=layout)
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False)
        places = list(grid.flat)
        for draw, axes in zip(chosen, places, strict=False):
            draw(axes, runs)
        for axes in places[len(chosen) :]:
            axes.remove()
        _name_runs(figure, runs, script)
        notes = [*notes, *runs.notes, *([script.note] if script.note else [])]
        figure.notes = notes
        if notes:
            text = "\n".join(textwrap.wrap(" ".join(notes), 150 if columns == 2 else 80))
            figure.supxlabel(text, fontsize=6.5, color=FAINT, x=0.01, ha="left")
        _disable_math(figure)
        figure.draw_without_rendering()  # fixes ticks and layout in this style, whatever the style is when saved
    drawn: Figure = figure
    return drawn


def _disable_math(figure: Figure) -> None:
    """Show dollar signs in names as they are. The labels of logarithmic axes stay formulas."""
    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()) is not None)]
    for text in (*figure.texts, *(text for legend in legends for text in legend.get_texts())):
        text.set_parse_math(False)


def _name_runs(figure: Figure, runs: Runs, script: Script) -> None:
    """Name the runs once, above all plots."""
    from matplotlib.lines import Line2D

    if len(runs.tables) < 2:
        name = next(iter(runs.tables))
        if name:
            figure.suptitle(elide(script.show(name), 90), fontsize=8, color=FAINT, x=0.01, ha="left")
        return
    handles = [Line2D([], [], color=COLORS[at % len(COLORS)], linewidth=2.5) for at in range(len(runs.tables))]
    labels = [elide(script.show(name), 42) for name in runs.tables]
    figure.legend(
        handles, labels, loc="outside upper left", ncols=min(len(labels), 3), frameon=False, fontsize=7.5,
        handlelength=1.2,
    )  # fmt: skip


def _figure_class() -> Any:
    """Return a figure class that a notebook displays without pyplot, with ``notes``."""
    from matplotlib.figure import Figure

    class MetricsFigure(Figure):
        """The figure of ``plot_metrics``; ``notes`` are the sentences below it."""

        notes: list[str]

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=DPI)
            return buffer.getvalue()

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
