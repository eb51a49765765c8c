"""What every plot is drawn with: the runs, their colours, lines with their moving average, bare axes."""

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


SHADE: Final = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}


def line_of(axes: Axes, line: Series, color: str, runs: Runs, label: str = "_") -> None:
    """Draw the values pale and their moving average strong, or only the values where they are few."""
    window = window_for(len(line.x), runs.smooth)
    thin = line.thin()
    band(axes, thin, color)
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


def band(axes: Axes, line: Series, color: str) -> None:
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.15, linewidth=0)


def scaled(line: Series, scale: float) -> Series:
    return Series(line.x, line.y * scale, *(None if band is None else band * scale for band in (line.low, line.high)))


def time_unit(runs: Runs, name: str) -> tuple[float, str]:
    values = [line.y for _, line in runs.lines(name)]
    most = max((float(np.percentile(part, 95)) for part in values), default=1.0)
    return (1.0, "s") if most >= 1 else (1e3, "ms") if most >= 1e-3 else (1e6, "µs")


def spread(values: Any) -> float:
    low, high = np.percentile(values, [1, 100])
    return float(high / low) if low > 0 else np.inf


def frame(axes: Axes, runs: Runs, title: str, y_label: str, *, zero: bool = False) -> None:
    bare(axes, title, y_label)
    axes.set_xlabel(runs.x_label)
    if runs.x == "step" and all((table["step"] % 1 == 0).all() for table in runs.tables.values()):
        axes.locator_params(axis="x", integer=True)
    if zero:
        most = axes.dataLim.ymax  # above values that differ little autoscaling leaves no room
        axes.set_ylim(0, 1.06 * most if np.isfinite(most) and most > 0 else None)


def bare(axes: Axes, title: str, y_label: str) -> None:
    axes.set_title(title, loc="left", fontsize=8, color=INK, fontweight="bold")
    axes.set_ylabel(y_label)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def legend(axes: Axes, right: Axes | None = None) -> None:
    handles: dict[str, Any] = {}
    for part in (axes, right):
        if part is not None:
            for handle, label in zip(*part.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
    if handles:
        place: Any = "best" if right is None else _emptiest_place(axes, right)  # one of the literals it takes
        (right or axes).legend(
            list(handles.values()), list(handles), loc=place, fontsize=6.5, framealpha=0.8, edgecolor="none",
            handlelength=1.6, borderpad=0.2, labelcolor=INK,
        )  # fmt: skip


_ACROSS: Final = {"right": 0.62, "left": 0.0, "center": 0.31}
_UP: Final = {"upper": 0.72, "lower": 0.0, "center": 0.36}
_WIDE, _HIGH = 0.38, 0.28
"""Where a legend may stand, and its size, in parts of the axes."""


def _emptiest_place(*parts: Axes) -> str:
    """Return the place with the least of the lines in it: ``best`` knows of the lines of one axes only."""
    points = [np.empty((0, 2))]
    for axes in parts:
        for line in axes.lines:
            x, y = (np.asarray(column, dtype=float) for column in (line.get_xdata(), line.get_ydata()))
            if len(x):
                along = np.linspace(x.min(), x.max(), 200)
                dense = np.column_stack([along, np.interp(along, x, y)])
                points.append(axes.transAxes.inverted().transform(axes.transData.transform(dense)))
    x, y = np.concatenate(points).T
    covered = {
        f"{upper} {side}": int(((x >= left) & (x <= left + _WIDE) & (y >= low) & (y <= low + _HIGH)).sum())
        for upper, low in _UP.items()
        for side, left in _ACROSS.items()
        if upper != side
    }
    return min(covered, key=lambda place: covered[place])
