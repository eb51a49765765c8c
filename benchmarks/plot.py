"""Plot the cost that each variant adds to a step, one panel a model, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .stats import Estimate, difference, median, rounds_of

Json = Mapping[str, Any]

COLOURS: Final = {"autoprof": "#2563eb", "floor": "#0f172a", "others": "#d97706"}
NAMES: Final = {"autoprof": "autoprof", "floor": "the floor: hooks that only read the clock", "others": "used instead"}
INK, GREY, FAINT = "#0f172a", "#64748b", "#e2e8f0"
LEAST_PERCENT: Final = 0.1
"""Costs below this are drawn at the left edge of the axis: they are below the noise."""
LEFT: Final = 0.015
STEP_COLUMN, MODULE_COLUMN = 1.14, 1.30
"""Where the numbers' columns end, as fractions of the axes."""
ROW_INCHES: Final = 0.25
HEAD_INCHES: Final = 0.85
"""Room above a panel's first row, for the title and the axis below the panel before."""


def draw(results: Json, path: Path) -> None:
    """Write the figure."""
    workloads = [workload for workload in results["workloads"].values() if workload["blocks"].get("bare")]
    counts = [max(1, len(_shown(workload))) for workload in workloads]
    height = 1.3 + sum(HEAD_INCHES + ROW_INCHES * count for count in counts)
    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 9.5}):
        figure = plt.figure(figsize=(10.5, height))
        top = height - 0.95
        for count, workload in zip(counts, workloads, strict=True):
            tall = ROW_INCHES * count
            top -= 0.45
            axes = figure.add_axes((0.345, (top - tall) / height, 0.475, tall / height))
            _panel(axes, workload)
            top -= tall + HEAD_INCHES - 0.45
        _frame(figure, height, results["machine"])
        figure.savefig(path, dpi=150, facecolor="white")
        plt.close(figure)


def _frame(figure: Figure, height: float, machine: Json) -> None:
    """Put the title and the legend above the panels, and where it was measured below."""
    figure.text(
        LEFT,
        1 - 0.18 / height,
        "Cost that a profiler adds to a training step",
        va="top",
        fontsize=15,
        weight="bold",
        color=INK,
    )
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=NAMES[family], markersize=6.5)
        for family, colour in COLOURS.items()
    ]
    handles.append(
        Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            color=GREY,
            markerfacecolor="white",
            label="not different from zero",
            markersize=6.5,
        )
    )
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(LEFT - 0.012, 1 - 0.48 / height), ncols=4, frameon=False,
        fontsize=9, handletextpad=0.2, columnspacing=1.6, labelcolor=INK,
    )  # fmt: skip
    figure.text(
        LEFT, 0.14 / height,
        f"{machine['cpu']}, {machine['threads']} thread(s), torch {machine['torch']}, Python {machine['python']}, "
        f"{machine['date'][:10]}. Medians over rounds in which all variants took turns; lines are 95 % intervals.",
        fontsize=8, color=GREY,
    )  # fmt: skip


def _shown(workload: Json) -> list[str]:
    return [name for name in workload["labels"] if name in workload["blocks"] and name != "bare"]


def _panel(axes: Axes, workload: Json) -> None:
    """Draw one model: a dot and an interval a variant, the numbers beside it."""
    names = _shown(workload)
    bare = median([block["value_ns"] for block in workload["blocks"]["bare"]]).value
    highest = 10 * LEAST_PERCENT
    for position, name in enumerate(names):
        mine, base = rounds_of(workload["blocks"], name, "bare")
        cost = difference(mine, base)
        highest = max(highest, 100 * cost.high / bare)
        _dot(axes, position, cost, bare, COLOURS[workload["families"][name]])
        _numbers(axes, position, cost, bare, workload["modules"])
    _heading(axes, f"{workload['title']}", f"{bare / 1e6:.2f} ms a step, {workload['modules']} modules")
    axes.set_yticks(range(len(names)), [workload["labels"][name] for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(LEAST_PERCENT, highest * 1.5)
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"+{value:g} %"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", which="both", length=0, labelcolor="#334155", labelsize=9)
    axes.tick_params(axis="y", pad=9)
    for side in axes.spines.values():
        side.set_visible(False)


def _heading(axes: Axes, title: str, detail: str) -> None:
    """Write a panel's title from the figure's left edge on, and the heads of the columns."""
    where = ("figure fraction", "axes fraction")
    line = axes.annotate(
        title, (LEFT, 1), (0, 15), xycoords=where, textcoords="offset points", weight="bold", color=INK
    )
    axes.annotate(detail, (LEFT, 1), (0, 4), xycoords=where, textcoords="offset points", fontsize=8.5, color=GREY)
    line.set_fontsize(10.5)
    for column, text in ((STEP_COLUMN, "per step"), (MODULE_COLUMN, "per module")):
        axes.annotate(
            text,
            (column, 1),
            (0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            fontsize=8.5,
            color=GREY,
        )


def _numbers(axes: Axes, position: int, cost: Estimate, bare: float, modules: int) -> None:
    colour = INK if cost.low > 0 else GREY
    texts = (
        (STEP_COLUMN, f"{100 * cost.value / bare:+.1f} %"),
        (MODULE_COLUMN, f"{cost.value / modules / 1e3:+.1f} µs"),
    )
    for column, text in texts:
        axes.annotate(
            text,
            (column, position),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize=9,
            color=colour,
        )


def _dot(axes: Axes, position: int, cost: Estimate, bare: float, colour: str) -> None:
    value, low, high = (max(100 * part / bare, LEAST_PERCENT) for part in (cost.value, cost.low, cost.high))
    axes.plot([LEAST_PERCENT, value], [position, position], color=FAINT, linewidth=5, solid_capstyle="butt", zorder=1)
    axes.plot(
        [low, high], [position, position], color=colour, linewidth=1.5, alpha=0.7, zorder=2, solid_capstyle="butt"
    )
    axes.plot(
        [value], [position], marker="o", markersize=6.5, color=colour, zorder=3,
        markerfacecolor=colour if cost.low > 0 else "white", clip_on=False,
    )  # fmt: skip
