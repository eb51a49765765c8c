"""The plots of a training run, a function each: it draws what the runs have into its axes and adds notes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._reports.figures import FAINT, INK, SMALL, Legend, bare, legend_of, set_title
from .._reports.text import elide
from .fields import FIELDS, is_loss
from .series import COLORS, RATES, TIMER_SUFFIX, Runs, Series, unknown_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VALIDATION: Final = "#d55e00"
RED: Final = "#d00000"
"""Only for slow records: no run has this colour."""
_MAX_GPUS: Final = 16
"""GPUs of one run with a box of their own."""
_MAX_TIMERS: Final = 6
_MAX_BAR_NAME: Final = 24
"""Cells of a name beside its bar."""
_MAX_LOSSES: Final = 4
_MAX_TITLE: Final = 44
"""Cells of a plot's title that is a name of the log."""
_MAX_SLOW_POINTS: Final = 300
"""Slow records that are marked: the slowest. More would hide the line."""
_MAX_VALIDATION_MARKERS: Final = 12
"""More diamonds would hide the training curve; further values are a line without markers."""
_MAX_SCATTER_POINTS: Final = 2000
_MAX_LARGE_POINTS: Final = 100
_EXPONENT: Final = re.compile(r"e(?:\+|(-))0*(\d+)")
_BY_WAIT: Final = "1 − waiting for data / step time"
_BY_RATE: Final = "throughput / its P95 in the run"


def draw_loss(axes: Axes, runs: Runs) -> Legend:
    """Draw the loss with its moving average, below it in depth the validation loss, and lr on a second axis."""
    names = ["loss"] if runs.has("loss") else other_losses(runs)
    for name in names:
        for run, line in runs.lines(name):
            color = runs.color(run) if len(names) == 1 else COLORS[names.index(name) % len(COLORS)]
            _draw_line(axes, line, color, runs, label=runs.show(name))
    for run, line in runs.lines("val_loss"):
        _draw_validation(axes, line, runs.color(run) if len(runs.tables) > 1 else VALIDATION)
    _finish(axes, runs, "Loss", "loss")
    values = [line.y for name in names for _, line in runs.lines(name)]
    if values and min(float(part.min()) for part in values) > 0 and _spread(np.concatenate(values)) > 300:
        axes.set_yscale("log")
    if not runs.has("lr"):
        return legend_of(axes)
    return legend_of(axes, _draw_lr(axes, runs))


def _draw_validation(axes: Axes, line: Series, color: str) -> None:
    """Draw a thin dashed line with few hollow markers, below the training curve."""
    thin = line.thin()
    every = -(-len(thin.x) // _MAX_VALIDATION_MARKERS)
    axes.plot(
        thin.x, thin.y, "D--", color=color, markersize=3, linewidth=0.8, markerfacecolor="none", markeredgewidth=0.7,
        markevery=every, zorder=1.9, label="validation loss",
    )  # fmt: skip


def _draw_lr(axes: Axes, runs: Runs) -> Axes:
    """Draw the learning rate on a second axis, its power of ten in the axis' label."""
    right = axes.twinx()
    lines = [(run, line.thin()) for run, line in runs.lines("lr")]
    most = max((float(line.y.max()) for _, line in lines), default=0.0)
    power = int(np.floor(np.log10(float(f"{most:.3g}")))) if most > 0 else 0  # 9.9999e-5 is 1e-4
    for run, line in lines:
        color = FAINT if len(runs.tables) == 1 else runs.color(run)
        right.plot(line.x, line.y, color=color, linewidth=0.9, linestyle=(0, (1, 1.2)), label="lr (right)", zorder=1)
    right.set_ylabel("lr" if power in (0, -1) else f"lr (1e{power})", color=FAINT)
    unit = 1.0 if power in (0, -1) else 10.0**power
    right.yaxis.set_major_formatter(lambda value, _: f"{value / unit:g}")
    right.tick_params(colors=FAINT)
    right.spines["top"].set_visible(False)
    right.set_ylim(0, None if most > 0 else 1)
    return right


def other_losses(runs: Runs) -> list[str]:
    """Return the losses that are not called ``loss``, such as ``loss_bbox``."""
    names = {str(name) for table in runs.tables.values() for name in table if name not in FIELDS and is_loss(str(name))}
    return sorted(name for name in names if runs.has(name))[:_MAX_LOSSES]


def other_columns(runs: Runs) -> list[str]:
    """Return the columns of numbers whose names are not known and that no other plot draws."""
    drawn = [] if runs.has("loss") else other_losses(runs)
    names = dict.fromkeys(name for table in runs.tables.values() for name in unknown_columns(table))
    return [name for name in names if name not in drawn and not name.endswith(TIMER_SUFFIX)]


def draw_column(axes: Axes, runs: Runs, name: str) -> Legend:
    """Draw a column under the name that the log gives it."""
    for run, line in runs.lines(name):
        _draw_line(axes, line, runs.color(run), runs)
    _finish(axes, runs, elide(runs.show(name), _MAX_TITLE), "")
    values = np.concatenate([line.y for _, line in runs.lines(name)])
    if values.min() > 0 and _spread(values) > 300:
        axes.set_yscale("log")
    return legend_of(axes)


def draw_throughput(axes: Axes, runs: Runs) -> Legend:
    """Draw the throughput with its moving average; records below the run's P10 are red."""
    label = "below P10"
    for run, line in runs.lines(runs.rate):
        _draw_line(axes, line, runs.color(run), runs, label="throughput")
        if len(line.y) < 10:
            continue
        limit = float(np.percentile(line.y, 10))
        slow = np.flatnonzero(line.y < limit)
        slow = slow[np.argsort(line.y[slow])][:_MAX_SLOW_POINTS]
        slow.sort()
        above = runs.window_for(len(line.y)) <= 1  # a curve of few points has markers, which would hide them
        style: dict[str, Any] = {"markersize": 5.0, "zorder": 2.1} if above else {"markersize": 2.6, "zorder": 1.95}
        axes.plot(line.x[slow], line.y[slow], ".", color=RED, label=label, **style)
        axes.axhline(limit, color=RED, linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
        label = "_"
    _finish(axes, runs, "Throughput", RATES[runs.rate], from_zero=True)
    return legend_of(axes)


def draw_step_time(axes: Axes, runs: Runs) -> Legend:
    """Draw the step time, and below it the time of waiting for data."""
    scale, unit = _time_unit(runs, "step_time_s")
    for run, line in runs.lines("step_time_s"):
        _draw_line(axes, line.scale_y(scale), runs.color(run), runs, label="step")
    for run, line in runs.lines("data_time"):
        color = runs.color(run) if len(runs.tables) > 1 else COLORS[1]
        _draw_line(axes, line.scale_y(scale), color, runs, label="waiting for data", linestyle=(0, (3, 1)))
    _finish(axes, runs, "Step time", unit, from_zero=True)
    values = np.concatenate([line.y * scale for _, line in runs.lines("step_time_s")])
    high = float(np.percentile(values, 99)) * 1.6
    if 0 < high < float(values.max()):
        count = int((values > high).sum())
        axes.set_ylim(0, high)
        text = f"{count} above the axis, up to {values.max():.3g} {unit}"
        axes.set_title(text, loc="right", fontsize=SMALL, color=FAINT)
    return legend_of(axes)


def draw_grad_norm(axes: Axes, runs: Runs) -> Legend:
    """Draw the norm of the gradient."""
    for run, line in runs.lines("grad_norm"):
        _draw_line(axes, line, runs.color(run), runs)
    values = np.concatenate([line.y for _, line in runs.lines("grad_norm")])
    is_wide = values.min() > 0 and _spread(values) > 100
    _finish(axes, runs, "Gradient norm", "norm", from_zero=not is_wide)
    if is_wide:
        axes.set_yscale("log")
    return legend_of(axes)


def draw_memory(axes: Axes, runs: Runs) -> Legend:
    """Draw the logged memory."""
    for run, line in runs.lines("memory"):
        thin = line.thin()
        _draw_range(axes, thin, runs.color(run))
        axes.plot(thin.x, thin.y, color=runs.color(run), linewidth=1.2)
    _finish(axes, runs, "Memory", "GiB", from_zero=True)
    return legend_of(axes)


def has_timers(runs: Runs) -> bool:
    """Return whether a run has columns of a timing log: ``Forward (ms)``."""
    return any(str(name).endswith(TIMER_SUFFIX) for table in runs.tables.values() for name in table)


def draw_timers(axes: Axes, runs: Runs) -> Legend:
    """Draw the longest names of the first run's timing log."""
    run, table = next(iter(runs.tables.items()))
    names = [name for name in table if str(name).endswith(TIMER_SUFFIX) and name != f"other{TIMER_SUFFIX}"]
    names = sorted(names, key=lambda name: -float(table[name].mean()))[:_MAX_TIMERS]
    if table[runs.x].nunique() == 1:
        return _draw_timers_of_one_step(axes, runs, run, names)
    for at, name in enumerate(names):
        line = runs.series(run, name)
        if line is not None:
            thin = line.thin()
            axes.plot(
                thin.x, thin.y, color=COLORS[at], linewidth=1.1, marker="." if len(thin.x) < 40 else None,
                label=runs.show(str(name).removesuffix(TIMER_SUFFIX)),
            )  # fmt: skip
    _finish(axes, runs, "Time by name", "ms", from_zero=True)
    return legend_of(axes)


def _draw_timers_of_one_step(axes: Axes, runs: Runs, run: str, names: list[str]) -> Legend:
    """Draw a bar per name, with a line for the range over the ranks."""
    lines = [(name, line) for name in names if (line := runs.series(run, name)) is not None]
    for at, (_, line) in enumerate(lines):
        axes.barh(at, line.y[0], 0.6, color=COLORS[0], alpha=0.75)
        if line.low is not None and line.high is not None:
            axes.hlines(at, line.low[0], line.high[0], color=INK, linewidth=1.2)
    shown = [elide(runs.show(str(name).removesuffix(TIMER_SUFFIX)), _MAX_BAR_NAME) for name, _ in lines]
    axes.set_yticks(range(len(lines)), shown, parse_math=False)
    axes.invert_yaxis()
    set_title(axes, "Time by name")
    bare(axes, grid="x")
    axes.set_xlabel(f"ms, in the only {'step' if runs.x == 'step' else 'record'}")
    return legend_of(axes)


def draw_gpu_mean(axes: Axes, runs: Runs) -> Legend:
    """Draw the mean utilisation of the GPUs over the run."""
    for run, line in runs.lines("gpu_util"):
        _draw_line(axes, line, runs.color(run), runs, label="mean of all GPUs")
    _finish(axes, runs, "GPU utilisation, mean of all GPUs", "%")
    axes.set_ylim(0, 103)
    return legend_of(axes)


def has_gpu_columns(runs: Runs) -> bool:
    """Return whether a run has a column of GPU utilisation."""
    return any(str(name).startswith("gpu_util") for table in runs.tables.values() for name in table)


def draw_gpu_boxes(axes: Axes, runs: Runs) -> Legend:
    """Draw a box per GPU: median, quartiles, whiskers to P5 and P95."""
    from matplotlib.colors import to_rgba

    at, ticks, labels = 0, [], []
    for run, table in runs.tables.items():
        columns = [name for name in table if str(name).startswith("gpu_util_")] or [
            name for name in table if name == "gpu_util"
        ]
        columns = [name for name in columns if table[name].notna().any()]
        for name in columns[:_MAX_GPUS]:
            low, first, middle, third, high = np.percentile(table[name].dropna().to_numpy(), [5, 25, 50, 75, 95])
            color = runs.color(run)  # by hand: Axes.boxplot loads pyplot, and with it a backend
            axes.bar(at, third - first, 0.6, bottom=first, facecolor=to_rgba(color, 0.35), edgecolor=color)
            axes.vlines([at, at], [low, third], [first, high], color=color, linewidth=0.9)
            axes.hlines([low, high], at - 0.15, at + 0.15, color=color, linewidth=0.9)
            axes.hlines(middle, at - 0.3, at + 0.3, color=INK, linewidth=1.2)
            ticks.append(at)
            labels.append(str(name).removeprefix("gpu_util_") if name != "gpu_util" else "all")
            at += 1
        at += 1
        if len(columns) > _MAX_GPUS:
            runs.notes.append(f"Only the first {_MAX_GPUS} of {len(columns)} GPUs have a box.")
    axes.set_xticks(ticks, labels)
    _style(axes, "GPU utilisation by GPU", "%")
    axes.set_xlabel("GPU (box: quartiles, whiskers: P5 to P95)")
    axes.set_ylim(0, 103)
    return legend_of(axes)


def draw_estimated_utilisation(axes: Axes, runs: Runs) -> Legend:
    """Draw an estimate of the utilisation if none was logged: an upper bound, or relative to the run's own best."""
    by_wait = runs.has("data_time") and runs.has("step_time_s")
    for run, table in runs.tables.items():
        if by_wait and {"data_time", "step_time_s"} <= set(table):
            share = 100 * (1 - table["data_time"] / table["step_time_s"].where(table["step_time_s"] > 0)).clip(0, 1)
        elif not by_wait and runs.rate in table:
            share = 100 * (table[runs.rate] / table[runs.rate].quantile(0.95)).clip(0, 1)
        else:
            continue
        line = runs.series(run, "_share", share)
        if line is not None:
            _draw_line(axes, line, runs.color(run), runs, label=_BY_WAIT if by_wait else _BY_RATE)
    _finish(axes, runs, "Utilisation, estimate (none logged)", "% (estimate)")
    axes.set_ylim(0, 103)
    formula = _BY_WAIT if by_wait else _BY_RATE
    meaning = "an upper bound" if by_wait else "relative to this run, not to the device's peak"
    runs.notes.append(f"Utilisation was not logged; the estimate is {formula}: {meaning}.")
    return legend_of(axes)


def draw_throughput_by_step_time(axes: Axes, runs: Runs) -> Legend:
    """Draw the throughput over batch size / step time (equal if all time is in steps), else over the step time."""
    ideal = runs.has("batch_size") and runs.has("throughput")
    scale, unit = (1.0, "") if ideal else _time_unit(runs, "step_time_s")
    most = 0.0
    for run, table in runs.tables.items():
        name = "throughput" if ideal else runs.rate
        if not {name, "step_time_s"} <= set(table) or (ideal and "batch_size" not in table):
            continue
        seconds = table["step_time_s"].where(table["step_time_s"] > 0)
        across = table["batch_size"] / seconds if ideal else seconds * scale
        complete = across.notna() & table[name].notna()
        chosen = _choose_evenly(np.flatnonzero(complete.to_numpy()), _MAX_SCATTER_POINTS)
        xs, ys = across.to_numpy()[chosen], table[name].to_numpy()[chosen]
        size = 3 if len(xs) > _MAX_LARGE_POINTS else 6
        axes.plot(xs, ys, ".", color=runs.color(run), markersize=size, alpha=0.55, markeredgewidth=0)
        if ideal and len(xs):
            most = max(most, float(np.nanmax(xs)), float(np.nanmax(ys)))
    if ideal:
        axes.plot([0, most], [0, most], color=FAINT, linewidth=0.8, linestyle="--", label="equal")
        _style(axes, "Throughput vs batch size / step time", "samples/s")
        axes.set_xlabel("batch size / step time (samples/s)")
        axes.set_xlim(0)
        axes.set_ylim(0)
    else:
        _style(axes, "Throughput vs step time", RATES[runs.rate])
        axes.set_xlabel(f"step time ({unit})")
    return legend_of(axes)


def _choose_evenly(indices: Any, most: int) -> Any:
    """Return at most ``most`` of the indices, evenly spaced."""
    return indices[np.linspace(0, len(indices) - 1, min(len(indices), most)).astype(int)] if len(indices) else indices


def _draw_line(axes: Axes, line: Series, color: str, runs: Runs, label: str = "_", linestyle: Any = "-") -> None:
    """Draw the values pale and their moving average strong, above all else; few values are drawn alone."""
    window = runs.window_for(len(line.x))
    thin = line.thin()
    _draw_range(axes, thin, color)
    if window <= 1:
        marker = "o" if len(thin.x) <= 40 else None
        style: dict[str, Any] = {"linestyle": linestyle, "marker": marker, "markersize": 2.6}
        axes.plot(thin.x, thin.y, color=color, linewidth=1.3, label=label, **style)
        return
    axes.plot(thin.x, thin.y, color=color, linewidth=0.6, alpha=0.35, zorder=1.8)
    smooth = line.smooth(window).thin()
    text = label if label == "_" or len(runs.tables) > 1 else f"{label}, mean of {window}"
    axes.plot(smooth.x, smooth.y, color=color, linewidth=1.5, linestyle=linestyle, label=text)


def _draw_range(axes: Axes, line: Series, color: str) -> None:
    """Draw the range over the ranks as a shade."""
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.15, linewidth=0)


def _time_unit(runs: Runs, name: str) -> tuple[float, str]:
    """Return the factor and the name of the unit for a column in seconds."""
    values = [line.y for _, line in runs.lines(name)]
    most = max((float(np.percentile(part, 95)) for part in values), default=1.0)
    return (1.0, "s") if most >= 1 else (1e3, "ms") if most >= 1e-3 else (1e6, "µs")


def _spread(values: Any) -> float:
    """Return the maximum / P1 of positive values: on which scale they are readable."""
    low, high = np.percentile(values, [1, 100])
    return float(high / low) if low > 0 else np.inf


def _finish(axes: Axes, runs: Runs, title: str, y_label: str, *, from_zero: bool = False) -> None:
    _style(axes, title, y_label)
    axes.set_xlabel(runs.x_label)
    if axes.dataLim.width == 0 and np.isfinite(axes.dataLim.x0):  # one record
        axes.set_xticks([axes.dataLim.x0])
    elif runs.x == "step" and all((table["step"] % 1 == 0).all() for table in runs.tables.values()):
        axes.locator_params(axis="x", integer=True)
    _write_ticks(axes)
    if from_zero:
        most = axes.dataLim.ymax  # autoscaling leaves no margin above values that differ little
        axes.set_ylim(0, 1.06 * most if np.isfinite(most) and most > 1e-12 else 1)


def _write_ticks(axes: Axes) -> None:
    """Write an exponent in each label: one for the whole axis would stand where the legend is."""
    axes.ticklabel_format(axis="y", useOffset=False)
    most = max(map(abs, axes.get_ylim()))
    if not 1e-3 <= most < 1e6:
        axes.yaxis.set_major_formatter(lambda value, _: _EXPONENT.sub(r"e\1\2", f"{value:.6g}"))


def _style(axes: Axes, title: str, y_label: str) -> None:
    set_title(axes, title)
    axes.set_ylabel(y_label)
    bare(axes)
