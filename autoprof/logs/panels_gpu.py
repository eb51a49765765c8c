"""The plots of utilisation, logged or estimated, and of throughput against what it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .canvas import FAINT, INK, RATES, SHADE, Runs, bare, frame, legend, line_of, time_unit  # fmt: skip
from .series import Series, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CARDS: Final = 16
"""Boxes of one run: a cluster's thousand would be a block."""


def draw_gpu_mean(axes: Axes, runs: Runs) -> None:
    """Draw the mean utilisation of the cards over the run."""
    for run, line in runs.lines("gpu_util"):
        line_of(axes, line, runs.color(run), runs, label="mean of the cards")
    frame(axes, runs, "GPU utilisation, mean of the cards", "%")
    axes.set_ylim(0, 103)


def draw_gpu_cards(axes: Axes, runs: Runs) -> None:
    """Draw a box a card: median, quartiles, whiskers to P5 and P95."""
    from matplotlib.colors import to_rgba

    at, ticks, labels = 0, [], []
    for run, table in runs.tables.items():
        columns = [name for name in table if str(name).startswith("gpu_util_")] or [
            name for name in table if name == "gpu_util"
        ]
        columns = [name for name in columns if table[name].notna().any()]
        for name in columns[:_CARDS]:
            low, first, middle, third, high = np.percentile(table[name].dropna().to_numpy(), [5, 25, 50, 75, 95])
            color = runs.color(run)  # by hand: boxplot loads pyplot, and with it a backend
            axes.bar(at, third - first, 0.6, bottom=first, facecolor=to_rgba(color, 0.35), edgecolor=color)
            axes.vlines([at, at], [low, third], [first, high], color=color, linewidth=0.9)
            axes.hlines([low, high], at - 0.15, at + 0.15, color=color, linewidth=0.9)
            axes.hlines(middle, at - 0.3, at + 0.3, color=INK, linewidth=1.2)
            ticks.append(at)
            labels.append(str(name).removeprefix("gpu_util_") if name != "gpu_util" else "all")
            at += 1
        at += 1
        if len(columns) > _CARDS:
            runs.notes.append(f"the first {_CARDS} of {len(columns)} cards are drawn")
    axes.set_xticks(ticks, labels)
    bare(axes, "GPU utilisation by card", "%")
    axes.set_xlabel("card (box: quartiles, whiskers: P5 to P95)")
    axes.set_ylim(0, 103)


ESTIMATE_DATA: Final = "1 − waiting for data / step time"
ESTIMATE_RATE: Final = "throughput / its P95 in the run"


def draw_estimate(axes: Axes, runs: Runs) -> None:
    """Draw what can be said of utilisation where none was logged: an upper bound, or a share of the run's own best."""
    formula = ESTIMATE_DATA if runs.has("data_time") and runs.has("step_time_s") else ESTIMATE_RATE
    for run, table in runs.tables.items():
        if formula == ESTIMATE_DATA and {"data_time", "step_time_s"} <= set(table):
            share = 100 * (1 - table["data_time"] / table["step_time_s"].where(table["step_time_s"] > 0)).clip(0, 1)
        elif formula == ESTIMATE_RATE and runs.rate in table:
            share = 100 * (table[runs.rate] / table[runs.rate].quantile(0.95)).clip(0, 1)
        else:
            continue
        line = series(table.assign(_share=share), runs.x, "_share")
        if line is not None:
            line_of(axes, Series(line.x / runs.x_scale, line.y, line.low, line.high), runs.color(run), runs)
    frame(axes, runs, "Utilisation, estimate (none logged)", "% (estimate)")
    axes.set_ylim(0, 103)
    axes.text(0.02, 0.05, f"= {formula}", transform=axes.transAxes, fontsize=7, color=FAINT, bbox=SHADE)
    runs.notes.append(
        "Utilisation was not logged; the estimate is "
        + (
            f"{formula}: an upper bound."
            if formula == ESTIMATE_DATA
            else f"{formula}: relative to this run, not to the device's peak."
        )
    )


def draw_against(axes: Axes, runs: Runs) -> None:
    """Draw the throughput against batch size / step time (equal where all time is in steps), else step time."""
    ideal = runs.has("batch_size") and runs.has("throughput")
    scale, unit = (1.0, "") if ideal else time_unit(runs, "step_time_s")
    most = 0.0
    for run, table in runs.tables.items():
        name = "throughput" if ideal else runs.rate
        if not {name, "step_time_s"} <= set(table) or (ideal and "batch_size" not in table):
            continue
        seconds = table["step_time_s"].where(table["step_time_s"] > 0)
        across = table["batch_size"] / seconds if ideal else seconds * scale
        points = across.notna() & table[name].notna()
        chosen = np.flatnonzero(points.to_numpy())
        chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), 2000)).astype(int)] if len(chosen) else chosen
        xs, ys = across.to_numpy()[chosen], table[name].to_numpy()[chosen]
        axes.plot(xs, ys, ".", color=runs.color(run), markersize=3, alpha=0.55, markeredgewidth=0)
        if ideal and len(xs):
            most = max(most, float(np.nanmax(xs)), float(np.nanmax(ys)))
    if ideal:
        axes.plot([0, most], [0, most], color=FAINT, linewidth=0.8, linestyle="--", label="equal")
        bare(axes, "Throughput vs batch size / step time", "samples/s")
        axes.set_xlabel("batch size / step time (samples/s)")
        axes.set_xlim(0)
        axes.set_ylim(0)
        legend(axes)
    else:
        bare(axes, "Throughput vs step time", RATES[runs.rate])
        axes.set_xlabel(f"step time ({unit})")
