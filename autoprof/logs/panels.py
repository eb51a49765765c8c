"""The plots of a training, one function each: it draws into its axes what the runs have, and says what it could not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .canvas import (  # fmt: skip
    COLORS,
    FAINT,
    RATES,
    RED,
    Runs,
    band,
    frame,
    legend,
    line_of,
    scaled,
    spread,
    time_unit,
)
from .series import series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TIMERS: Final = 6


def draw_loss(axes: Axes, runs: Runs) -> None:
    """Draw the loss with its moving average, the validation's as points, and lr on a second axis."""
    names = ["loss"] if runs.has("loss") else other_losses(runs)
    for name in names:
        for run, line in runs.lines(name):
            color = runs.color(run) if len(names) == 1 else COLORS[names.index(name) % len(COLORS)]
            line_of(axes, line, color, runs, label=runs.show(name) if len(names) > 1 else "loss")
    for run, line in runs.lines("val_loss"):
        axes.plot(
            line.x, line.y, "D--", color=runs.color(run) if len(runs.tables) > 1 else "#d55e00", markersize=3,
            linewidth=0.8, markerfacecolor="white", label="validation loss",
        )  # fmt: skip
    frame(axes, runs, "Loss", "loss")
    values = [line.y for name in names for _, line in runs.lines(name)]
    if values and min(float(part.min()) for part in values) > 0 and spread(np.concatenate(values)) > 300:
        axes.set_yscale("log")
    if runs.has("lr"):
        right = axes.twinx()
        for run, line in runs.lines("lr"):
            color = FAINT if len(runs.tables) == 1 else runs.color(run)
            line = line.thin()
            right.plot(line.x, line.y, color=color, linewidth=0.9, linestyle=(0, (1, 1.2)), label="lr (right)")
        right.set_ylabel("lr", color=FAINT)
        right.tick_params(colors=FAINT)
        right.spines["top"].set_visible(False)
        right.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
        right.yaxis.get_offset_text().set(color=FAINT, size=7)
        right.set_ylim(bottom=0)
        legend(axes, right)
    else:
        legend(axes)


def other_losses(runs: Runs) -> list[str]:
    from .fields import FIELDS, is_loss

    names = {str(name) for table in runs.tables.values() for name in table if name not in FIELDS and is_loss(str(name))}
    return sorted(name for name in names if runs.has(name))[:4]


def draw_throughput(axes: Axes, runs: Runs) -> None:
    """Draw the throughput with its moving average; records below the run's P10 are red."""
    label = "below P10"
    for run, line in runs.lines(runs.rate):
        line_of(axes, line, runs.color(run), runs, label="throughput")
        if len(line.y) < 10:
            continue
        limit = float(np.percentile(line.y, 10))
        slow = np.flatnonzero(line.y < limit)
        slow = slow[np.linspace(0, len(slow) - 1, min(len(slow), 1500)).astype(int)] if len(slow) else slow
        axes.plot(line.x[slow], line.y[slow], ".", color=RED, markersize=3.2, label=label, zorder=5)
        axes.axhline(limit, color=RED, linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
        label = "_"
    frame(axes, runs, "Throughput", RATES[runs.rate], zero=True)
    legend(axes)


def draw_step_time(axes: Axes, runs: Runs) -> None:
    """Draw the time of a step, and below it the part that waits for data."""
    scale, unit = time_unit(runs, "step_time_s")
    for run, line in runs.lines("step_time_s"):
        line_of(axes, scaled(line, scale), runs.color(run), runs, label="step")
    for run, line in runs.lines("data_time"):
        color = runs.color(run) if len(runs.tables) > 1 else COLORS[1]
        thin = scaled(line, scale).thin()
        axes.plot(thin.x, thin.y, color=color, linewidth=0.8, linestyle="--", label="waiting for data")
    frame(axes, runs, "Step time", unit, zero=True)
    values = np.concatenate([line.y * scale for _, line in runs.lines("step_time_s")])
    high = float(np.percentile(values, 99)) * 1.6
    if 0 < high < float(values.max()):
        count = int((values > high).sum())
        axes.set_ylim(0, high)
        said = f"{count} above the axis, up to {values.max():.3g} {unit}"
        axes.text(0.99, 0.97, said, transform=axes.transAxes, ha="right", va="top", fontsize=6.5, color=FAINT)
    legend(axes)


def draw_grad_norm(axes: Axes, runs: Runs) -> None:
    """Draw the norm of the gradient."""
    for run, line in runs.lines("grad_norm"):
        line_of(axes, line, runs.color(run), runs)
    values = np.concatenate([line.y for _, line in runs.lines("grad_norm")])
    wide = values.min() > 0 and spread(values) > 100
    frame(axes, runs, "Gradient norm", "norm", zero=not wide)
    if wide:
        axes.set_yscale("log")


def draw_memory(axes: Axes, runs: Runs) -> None:
    """Draw the memory that was logged."""
    for run, line in runs.lines("memory"):
        thin = line.thin()
        band(axes, thin, runs.color(run))
        axes.plot(thin.x, thin.y, color=runs.color(run), linewidth=1.2)
    frame(axes, runs, "Memory", "GiB", zero=True)


def draw_timers(axes: Axes, runs: Runs) -> None:
    """Draw the names of a timing log that take longest."""
    for table in runs.tables.values():
        names = [name for name in table if str(name).endswith(" (ms)") and name != "other (ms)"]
        names = sorted(names, key=lambda name: -float(table[name].mean()))[:_TIMERS]
        for at, name in enumerate(names):
            line = series(table, runs.x, name)
            if line is not None:
                thin = line.thin()
                axes.plot(
                    thin.x / runs.x_scale, thin.y, color=COLORS[at], linewidth=1.1,
                    marker="." if len(thin.x) < 40 else None, label=runs.show(str(name).removesuffix(" (ms)")),
                )  # fmt: skip
        break
    frame(axes, runs, "Time by name", "ms", zero=True)
    legend(axes)
