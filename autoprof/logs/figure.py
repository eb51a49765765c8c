"""``plot_metrics``: the figure of a training, or of several over each other. No pyplot, so no window and no state."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .._reports.fonts import Script, script_for
from .._reports.text import elide
from ..errors import AutoprofError, nearest
from . import panels, panels_gpu
from .canvas import COLORS, FAINT, INK, Runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTPUT: Final = "training_metrics.png"
FORMATS: Final = ("png", "svg", "pdf")
X_AXES: Final = ("step", "time", "tokens")
WIDTH_IN: Final = 7.2
"""Two columns of a paper: each plot is as wide as one, its text 7 to 8 points."""
HEIGHT_IN: Final = 2.35
DPI: Final = 200
RUNS: Final = 8
"""Runs with a colour of their own."""
_STYLE: Final[dict[str, Any]] = {
    "font.size": 7.5, "axes.labelsize": 7.5, "xtick.labelsize": 7, "ytick.labelsize": 7, "axes.labelcolor": INK,
    "text.color": INK,
    "axes.edgecolor": "#999999", "xtick.color": INK, "ytick.color": INK, "axes.linewidth": 0.7,
    "axes.unicode_minus": False,
    "svg.fonttype": "path", "pdf.fonttype": 42,
}  # fmt: skip


def plot_metrics(
    df: pd.DataFrame, output: str | os.PathLike[str] | None = OUTPUT, *, x: str = "step", smooth: int | None = None,
    show: bool = False,
) -> Figure:  # fmt: skip
    """Draw what a table of ``load_logs`` has, save it as ``output`` (None: not at all), and return the figure.

    A plot whose column is missing is left out and named in the figure's last line, and in its ``notes``. ``x`` is
    ``step``, ``time`` or ``tokens``; ``smooth`` the records of the moving average (1: none); ``show`` opens a window.
    In a notebook the figure shows itself. Raises ``AutoprofError`` where there is nothing to draw.
    """
    if not len(df):
        raise AutoprofError("plot_metrics: the table is empty; allowed: what load_logs returns")
    runs, left_out = _runs(df, x, smooth)
    chosen, missing = _choose(runs)
    if not chosen:
        columns = ", ".join(str(name) for name in df.columns)
        raise AutoprofError(
            f"plot_metrics: nothing to draw in the columns {columns}; allowed: loss, throughput, step_time_s, …"
        )
    figure = _draw(runs, chosen, missing + left_out)
    if output is not None:
        save(figure, output)
    if show:
        _show(figure)
    return figure


def save(figure: Figure, output: str | os.PathLike[str]) -> None:
    """Write the figure in the format of the file's name. Raises ``AutoprofError`` for another format or a bad place."""
    path = os.fspath(output)
    suffix = os.path.splitext(path)[1].lstrip(".").lower()
    if suffix not in FORMATS:
        raise AutoprofError(
            f"{path}: {suffix or 'no format'!r} is no format of a figure here; {nearest(suffix, FORMATS)}"
        )
    try:
        figure.savefig(path, dpi=DPI, metadata={"Date": None} if suffix == "svg" else None)
    except OSError as error:
        raise AutoprofError(
            f"{path}: the figure cannot be written: {error.strerror}; allowed: a place that can be"
        ) from error


def _runs(df: pd.DataFrame, x: str, smooth: int | None) -> tuple[Runs, list[str]]:
    if x not in X_AXES:
        raise AutoprofError(f"x: {x!r} is no axis; {nearest(x, X_AXES)}")
    table = df if "step" in df else df.assign(step=range(1, len(df) + 1))
    names = list(dict.fromkeys(table["run"].astype(str))) if "run" in table else [""]
    tables = {name: table[table["run"].astype(str) == name] for name in names} if "run" in table else {"": table}
    ranked = any("rank" in part and part["rank"].nunique() > 1 for part in tables.values())
    notes = ["A line is the mean over the ranks, its shade their range."] if ranked else []
    notes += [f"{len(names) - RUNS} runs are not drawn: there are {RUNS} colours."] if len(names) > RUNS else []
    tables = dict(list(tables.items())[:RUNS])
    column = {"step": "step", "time": "elapsed_s", "tokens": "tokens"}[x]
    if column not in table or not table[column].notna().any():
        raise AutoprofError(f"x: {x!r} is not in the log; allowed: 'step'")
    largest = float(table[column].max())
    scale, unit = 1.0, ""
    if x == "time":
        scale, unit = (3600.0, "h") if largest > 2 * 3600 else (60.0, "min") if largest > 120 else (1.0, "s")
    elif x == "tokens":
        scale, unit = (1e9, "billions") if largest > 2e9 else (1e6, "millions") if largest > 2e6 else (1.0, "")
    label = {
        "step": "step",
        "time": f"time since the start ({unit})",
        "tokens": f"tokens ({unit})" if unit else "tokens",
    }[x]
    texts = "".join([*names, *(str(name) for name in table.columns)])
    script = script_for(texts)
    return Runs(tables, column, label, scale, smooth, script.show, []), notes


def _choose(runs: Runs) -> tuple[list[Callable[[Axes, Runs], None]], list[str]]:
    """Return the plots that the columns allow, and the names of those that are missing."""
    rate = runs.has("throughput") or runs.has("tokens_per_s")
    cards = any(str(name).startswith("gpu_util") for table in runs.tables.values() for name in table)
    against = rate and runs.has("step_time_s")
    plots: list[tuple[str, bool, Callable[[Axes, Runs], None]]] = [
        ("loss", runs.has("loss") or runs.has("val_loss") or bool(panels.other_losses(runs)), panels.draw_loss),
        ("throughput", rate, panels.draw_throughput),
        ("step time", runs.has("step_time_s"), panels.draw_step_time),
        ("", against, panels_gpu.draw_against),
        ("GPU utilisation", runs.has("gpu_util"), panels_gpu.draw_gpu_mean),
        ("", runs.has("gpu_util") and cards, panels_gpu.draw_gpu_cards),
        (
            "",
            not runs.has("gpu_util") and (rate or (runs.has("data_time") and runs.has("step_time_s"))),
            panels_gpu.draw_estimate,
        ),
        ("gradient norm", runs.has("grad_norm"), panels.draw_grad_norm),
        ("memory", runs.has("memory"), panels.draw_memory),
        ("", any(str(name).endswith(" (ms)") for table in runs.tables.values() for name in table), panels.draw_timers),
    ]
    missing = [name for name, there, _ in plots if name and not there]
    if not runs.has("lr"):
        missing.insert(0, "lr")
    said = [f"Not in the log, so not drawn: {', '.join(missing)}."] if missing else []
    return [draw for _, there, draw in plots if there], said


def _draw(runs: Runs, chosen: list[Callable[[Axes, Runs], None]], notes: list[str]) -> Figure:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    texts = "".join([*runs.tables, *(str(name) for table in runs.tables.values() for name in table)])
    script = script_for(texts)
    defaults: dict[str, Any] = {
        key: value for key, value in mpl.rcParamsDefault.items() if key not in ("backend", "backend_fallback")
    }
    columns = 1 if len(chosen) == 1 else 2
    rows = -(-len(chosen) // columns)
    style: Any = {**defaults, **_STYLE, "font.family": list(script.families)}
    with mpl.rc_context(style):
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
        _legend(figure, runs, script)
        notes = [*notes, *runs.notes, *([script.note] if script.note else [])]
        figure.notes = notes
        if notes:
            figure.supxlabel(
                _wrapped(" ".join(notes), 150 if columns == 2 else 80), fontsize=6.5, color=FAINT, x=0.01, ha="left"
            )
        _plain(figure)
        figure.draw_without_rendering()  # ticks and layout are made with this style, whatever it is when saved
    drawn: Figure = figure
    return drawn


def _plain(figure: Figure) -> None:
    """Keep names with dollar signs from being read as formulas; the numbers of a logarithmic axis are ones."""
    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()) is not None)]
    for text in (*figure.texts, *(text for legend in legends for text in legend.get_texts())):
        text.set_parse_math(False)


def _legend(figure: Figure, runs: Runs, script: Script) -> None:
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
        handles,
        labels,
        loc="outside upper left",
        ncols=min(len(labels), 3),
        frameon=False,
        fontsize=7.5,
        handlelength=1.2,
    )


def _wrapped(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))


def _figure_class() -> Any:
    """Return a figure that a notebook shows without pyplot, and that keeps what is to be said about it."""
    from matplotlib.figure import Figure

    class MetricsFigure(Figure):
        """The figure of ``plot_metrics``; ``notes`` are the words about what is not in it."""

        notes: list[str]

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=DPI)
            return buffer.getvalue()

    return MetricsFigure


def _show(figure: Figure) -> None:
    """Open the figure in a window, where there can be one."""
    import matplotlib.pyplot as plt

    manager = plt.figure().canvas.manager
    if manager is None or plt.get_backend().lower() == "agg":
        plt.close()
        raise AutoprofError("show: there is no screen here; allowed: output='figure.png'")
    manager.canvas.figure = figure
    figure.set_canvas(manager.canvas)
    plt.show()
