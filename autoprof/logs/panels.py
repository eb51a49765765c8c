"""The plots of a training, one function each: it draws into its axes what the runs have, and says what it could not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .series import Series, series, window_for

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

INK: Final = "#333333"
FAINT: Final = "#6b6b6b"
GRID: Final = "#dddddd"
RED: Final = "#d00000"
"""Only for what is slow: no run has it."""
COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c564b", "#7f7f7f", "#b2a900")
_CARDS: Final = 16
"""Boxes of one run: a cluster's thousand would be a block."""
_TIMERS: Final = 6
RATES: Final = {"throughput": "samples/s", "tokens_per_s": "tokens/s"}


@dataclass(frozen=True, slots=True)
class Runs:
    """What every panel draws: the runs' tables by name, their colours, x and its scale, the window of the average."""

    tables: Mapping[str, pd.DataFrame]
    x: str
    x_label: str
    x_scale: float = 1.0
    smooth: int | None = None
    show: Callable[[str], str] = str
    notes: list[str] = field(default_factory=list)

    def color(self, run: str) -> str:
        """Return a run's colour, the same in every panel."""
        return COLORS[list(self.tables).index(run) % len(COLORS)]

    def has(self, name: str) -> bool:
        """Say whether a run has at least two values of a column."""
        return any(name in table and int(table[name].notna().sum()) > 1 for table in self.tables.values())

    def lines(self, name: str) -> list[tuple[str, Series]]:
        """Return a column of every run that has it."""
        found = ((run, series(table, self.x, name)) for run, table in self.tables.items())
        return [
            (run, Series(line.x / self.x_scale, line.y, line.low, line.high)) for run, line in found if line is not None
        ]

    @property
    def rate(self) -> str:
        """Return the column that is the throughput: samples, else tokens."""
        return next((name for name in RATES if self.has(name)), "throughput")


def draw_loss(axes: Axes, runs: Runs) -> None:
    """Draw the loss with its moving average, the validation's as points, and lr on a second axis."""
    names = ["loss"] if runs.has("loss") else _other_losses(runs)
    for name in names:
        for run, line in runs.lines(name):
            color = runs.color(run) if len(names) == 1 else COLORS[names.index(name) % len(COLORS)]
            _line(axes, line, color, runs, label=runs.show(name) if len(names) > 1 else "loss")
    for run, line in runs.lines("val_loss"):
        axes.plot(
            line.x, line.y, "D--", color=runs.color(run) if len(runs.tables) > 1 else "#d55e00", markersize=3, linewidth=0.8,
            markerfacecolor="white", label="validation loss",
        )  # fmt: skip
    _frame(axes, runs, "Loss", "loss")
    values = [line.y for name in names for _, line in runs.lines(name)]
    if values and min(float(part.min()) for part in values) > 0 and _spread(np.concatenate(values)) > 300:
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
        _legend(axes, right)
    else:
        _legend(axes)


def _other_losses(runs: Runs) -> list[str]:
    from .fields import FIELDS, is_loss

    names = {str(name) for table in runs.tables.values() for name in table if name not in FIELDS and is_loss(str(name))}
    return sorted(name for name in names if runs.has(name))[:4]


def draw_throughput(axes: Axes, runs: Runs) -> None:
    """Draw the throughput with its moving average; records below the run's P10 are red."""
    label = "below P10"
    for run, line in runs.lines(runs.rate):
        _line(axes, line, runs.color(run), runs, label="throughput")
        if len(line.y) < 10:
            continue
        limit = float(np.percentile(line.y, 10))
        slow = np.flatnonzero(line.y < limit)
        slow = slow[np.linspace(0, len(slow) - 1, min(len(slow), 1500)).astype(int)] if len(slow) else slow
        axes.plot(line.x[slow], line.y[slow], ".", color=RED, markersize=3.2, label=label, zorder=5)
        axes.axhline(limit, color=RED, linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
        label = "_"
    _frame(axes, runs, "Throughput", RATES[runs.rate], zero=True)
    _legend(axes)


def draw_step_time(axes: Axes, runs: Runs) -> None:
    """Draw the time of a step, and below it the part that waits for data."""
    scale, unit = _time_unit(runs, "step_time_s")
    for run, line in runs.lines("step_time_s"):
        _line(axes, _scaled(line, scale), runs.color(run), runs, label="step")
    for run, line in runs.lines("data_time"):
        color = runs.color(run) if len(runs.tables) > 1 else COLORS[1]
        thin = _scaled(line, scale).thin()
        axes.plot(thin.x, thin.y, color=color, linewidth=0.8, linestyle="--", label="waiting for data")
    _frame(axes, runs, "Step time", unit, zero=True)
    values = np.concatenate([line.y * scale for _, line in runs.lines("step_time_s")])
    high = float(np.percentile(values, 99)) * 1.6
    if 0 < high < float(values.max()):
        count = int((values > high).sum())
        axes.set_ylim(0, high)
        axes.text(0.99, 0.97, f"{count} above the axis, up to {values.max():.3g} {unit}", transform=axes.transAxes, ha="right", va="top", fontsize=6.5, color=FAINT)  # fmt: skip
    _legend(axes)


def draw_grad_norm(axes: Axes, runs: Runs) -> None:
    """Draw the norm of the gradient."""
    for run, line in runs.lines("grad_norm"):
        _line(axes, line, runs.color(run), runs)
    values = np.concatenate([line.y for _, line in runs.lines("grad_norm")])
    wide = values.min() > 0 and _spread(values) > 100
    _frame(axes, runs, "Gradient norm", "norm", zero=not wide)
    if wide:
        axes.set_yscale("log")


def draw_memory(axes: Axes, runs: Runs) -> None:
    """Draw the memory that was logged."""
    for run, line in runs.lines("memory"):
        thin = line.thin()
        _range(axes, thin, runs.color(run))
        axes.plot(thin.x, thin.y, color=runs.color(run), linewidth=1.2)
    _frame(axes, runs, "Memory", "GiB", zero=True)


def draw_gpu_mean(axes: Axes, runs: Runs) -> None:
    """Draw the mean utilisation of the cards over the run."""
    for run, line in runs.lines("gpu_util"):
        _line(axes, line, runs.color(run), runs, label="mean of the cards")
    _frame(axes, runs, "GPU utilisation, mean of the cards", "%")
    axes.set_ylim(0, 103)


def draw_gpu_cards(axes: Axes, runs: Runs) -> None:
    """Draw a box a card: median, quartiles, whiskers to P5 and P95."""
    at, ticks, labels = 0, [], []
    for run, table in runs.tables.items():
        columns = [name for name in table if str(name).startswith("gpu_util_")] or [
            name for name in table if name == "gpu_util"
        ]
        columns = [name for name in columns if table[name].notna().any()]
        for name in columns[:_CARDS]:
            box = axes.boxplot(
                table[name].dropna().to_numpy(), positions=[at], widths=0.6, whis=(5, 95), showfliers=False, patch_artist=True,
            )  # fmt: skip
            for patch in box["boxes"]:
                patch.set(facecolor=runs.color(run), alpha=0.35, edgecolor=runs.color(run))
            for line in (*box["whiskers"], *box["caps"]):
                line.set(color=runs.color(run), linewidth=0.9)
            for line in box["medians"]:
                line.set(color=INK, linewidth=1.2)
            ticks.append(at)
            labels.append(str(name).removeprefix("gpu_util_") if name != "gpu_util" else "all")
            at += 1
        at += 1
        if len(columns) > _CARDS:
            runs.notes.append(f"the first {_CARDS} of {len(columns)} cards are drawn")
    axes.set_xticks(ticks, labels)
    _bare(axes, "GPU utilisation by card", "%")
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
            _line(axes, Series(line.x / runs.x_scale, line.y, line.low, line.high), runs.color(run), runs)
    _frame(axes, runs, "Utilisation, estimate (none logged)", "% (estimate)")
    axes.set_ylim(0, 103)
    axes.text(0.02, 0.05, f"= {formula}", transform=axes.transAxes, fontsize=7, color=FAINT, bbox=_SHADE)
    runs.notes.append(
        "Utilisation was not logged; the estimate is "
        + (
            f"{formula}: an upper bound."
            if formula == ESTIMATE_DATA
            else f"{formula}: relative to this run, not to the device's peak."
        )
    )


def draw_against(axes: Axes, runs: Runs) -> None:
    """Draw the throughput against batch size / step time (they are equal where all time is in steps), else against step time."""
    ideal = runs.has("batch_size") and runs.has("throughput")
    scale, unit = (1.0, "") if ideal else _time_unit(runs, "step_time_s")
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
        _bare(axes, "Throughput vs batch size / step time", "samples/s")
        axes.set_xlabel("batch size / step time (samples/s)")
        axes.set_xlim(0)
        axes.set_ylim(0)
        _legend(axes)
    else:
        _bare(axes, "Throughput vs step time", RATES[runs.rate])
        axes.set_xlabel(f"step time ({unit})")


def draw_timers(axes: Axes, runs: Runs) -> None:
    """Draw the names of a timing log that take longest."""
    for table in runs.tables.values():
        names = [name for name in table if str(name).endswith(" (ms)") and name != "other (ms)"]
        names = sorted(names, key=lambda name: -float(table[name].mean()))[:_TIMERS]
        for at, name in enumerate(names):
            line = series(table, runs.x, name)
            if line is not None:
                thin = line.thin()
                axes.plot(thin.x / runs.x_scale, thin.y, color=COLORS[at], linewidth=1.1, marker="." if len(thin.x) < 40 else None, label=runs.show(str(name).removesuffix(" (ms)")))  # fmt: skip
        break
    _frame(axes, runs, "Time by name", "ms", zero=True)
    _legend(axes)


_SHADE: Final = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}


def _line(axes: Axes, line: Series, color: str, runs: Runs, label: str = "_") -> None:
    """Draw the values pale and their moving average strong, or only the values where they are few."""
    window = window_for(len(line.x), runs.smooth)
    thin = line.thin()
    _range(axes, thin, color)
    if window <= 1:
        marker = "o" if len(thin.x) <= 40 else None
        axes.plot(thin.x, thin.y, color=color, linewidth=1.3, marker=marker, markersize=2.6, label=label)
        return
    axes.plot(thin.x, thin.y, color=color, linewidth=0.6, alpha=0.35)
    smooth = line.smooth(window).thin()
    axes.plot(
        smooth.x,
        smooth.y,
        color=color,
        linewidth=1.5,
        label=label if label == "_" or len(runs.tables) > 1 else f"{label}, mean of {window}",
    )


def _range(axes: Axes, line: Series, color: str) -> None:
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.15, linewidth=0)


def _scaled(line: Series, scale: float) -> Series:
    return Series(line.x, line.y * scale, *(None if band is None else band * scale for band in (line.low, line.high)))


def _time_unit(runs: Runs, name: str) -> tuple[float, str]:
    values = [line.y for _, line in runs.lines(name)]
    middle = float(np.median(np.concatenate(values))) if values else 1.0
    return (1.0, "s") if middle >= 1 else (1e3, "ms") if middle >= 1e-3 else (1e6, "µs")


def _spread(values: Any) -> float:
    low, high = np.percentile(values, [1, 100])
    return float(high / low) if low > 0 else np.inf


def _frame(axes: Axes, runs: Runs, title: str, y_label: str, *, zero: bool = False) -> None:
    _bare(axes, title, y_label)
    axes.set_xlabel(runs.x_label)
    if zero:
        axes.set_ylim(bottom=0)


def _bare(axes: Axes, title: str, y_label: str) -> None:
    axes.set_title(title, loc="left", fontsize=8, color=INK, fontweight="bold")
    axes.set_ylabel(y_label)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def _legend(axes: Axes, right: Axes | None = None) -> None:
    handles: dict[str, Any] = {}
    for part in (axes, right):
        if part is not None:
            for handle, label in zip(*part.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
    if handles:
        (right or axes).legend(list(handles.values()), list(handles), loc="best", fontsize=6.5, framealpha=0.8, edgecolor="none", handlelength=1.6, borderpad=0.2, labelcolor=INK)  # fmt: skip
