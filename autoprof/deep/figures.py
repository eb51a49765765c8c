"""The figures of a capture: time by layer and by pattern, memory over the layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from .._reports.figures import (
    COLORS,
    INK,
    SMALL,
    TWO_COLUMNS_IN,
    Legend,
    bare,
    blank_figure,
    legend_of,
    set_title,
    settle,
    styled,
)  # fmt: skip
from .._reports.fonts import Script, script_for
from .._reports.text import elide_all
from .._units import NS_PER_MS
from ..frame import MODULE_PHASES
from .profile import Call, DeepProfile
from .text import describe_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BARS: Final = 24
"""Most layers with a bar; more bars would be too thin."""
FEWEST: Final = 6
LINES: Final = 8
POINTS: Final = 2000
"""Most points of a line; beyond it each point is the maximum of several."""
NAME_CELLS: Final = 30
NAMED: Final = 24
"""Most calls for which the axis shows layer names instead of numbers."""
_PHASE: Final = re.compile(r"^(.*) \[(backward|recompute)\]$")
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def time_figure(profile: DeepProfile) -> Figure | None:
    """Draw time as bars by layer and a line for each pattern; None without both."""
    layers, patterns = _by_layer(profile), dict(list(profile.patterns.items())[:LINES])
    if not layers and not patterns:
        return None
    script = script_for([*(name for name, _ in layers), *patterns])
    with styled(script):
        both = bool(layers) and bool(patterns)
        height = max(2.7, 1.3 + 0.155 * min(len(layers), BARS))
        figure = blank_figure(TWO_COLUMNS_IN, height)
        axes = figure.subplots(1, 2) if both else [figure.subplots()]
        legends = [_draw_layers(axes[0], layers, profile, script)] if layers else []
        legends += [_draw_patterns(axes[-1], patterns, profile, script)] if patterns else []
        notes = [f"{describe_steps(profile).capitalize()}, rank {profile.rank}; {_clock_note(profile)}"]
        if len(layers) > BARS:
            notes.append(f"{len(layers) - BARS} layers with less time are not shown.")
        settle(figure, legends, " ".join([*notes, script.note]).rstrip())
    return figure


def memory_figure(profile: DeepProfile) -> Figure | None:
    """Draw memory at the end of each layer call; None if memory was not recorded."""
    calls = profile.memory_calls()
    if not calls:
        return None
    script = script_for(sorted({call.name for call in calls[:NAMED]}))
    with styled(script):
        figure = blank_figure(TWO_COLUMNS_IN, 3.4 if len(calls) <= NAMED else 2.7)
        legend = _draw_memory(figure.subplots(), calls, profile, script)
        source = "the device's allocator" if profile.device_memory else "the CPU's allocations since the capture began"
        notes = [f"{describe_steps(profile).capitalize()}, rank {profile.rank}; a point: {source} at a layer's end."]
        if len(calls) > POINTS:
            notes.append(f"Of {len(calls)} calls each point is the maximum of {-(-len(calls) // POINTS)}.")
        settle(figure, [legend], " ".join([*notes, script.note]).rstrip())
    return figure


def _by_layer(profile: DeepProfile) -> list[tuple[str, dict[str, int]]]:
    """Return each layer's self time by phase, in the order of first calls."""
    found: dict[str, dict[str, int]] = {}
    for one in profile.layer_totals():
        match = _PHASE.match(one.name)
        name, phase = match.groups() if match else (one.name, "forward")
        own = one.device_self_ns if profile.has_device else one.host_self_ns
        found.setdefault(name, {})[phase] = own or 0
    return list(found.items())


def _draw_layers(
    axes: Axes, layers: Sequence[tuple[str, dict[str, int]]], profile: DeepProfile, script: Script
) -> Legend:
    kept = {name for name, _ in sorted(layers, key=lambda item: -sum(item[1].values()))[:BARS]}
    shown = [(name, parts) for name, parts in layers if name in kept]
    rows = np.arange(len(shown))
    reached = np.zeros(len(shown))
    for phase in MODULE_PHASES:
        part = np.array([parts.get(phase, 0) / NS_PER_MS for _, parts in shown])
        if part.any():
            axes.barh(rows, part, left=reached, height=0.64, color=phase.traits.color, label=phase.value)
            reached += part
    most = float(reached.max()) or 1.0
    for row, value in enumerate(reached):
        axes.text(value + 0.012 * most, row, f"{value:.3g}", va="center", fontsize=SMALL, color=INK)
    axes.set_xlim(0, 1.14 * most)
    axes.set_ylim(max(len(shown), FEWEST) - 0.4, -0.6)
    axes.set_yticks(list(rows), elide_all([script.show(name) for name, _ in shown], NAME_CELLS), fontsize=SMALL)
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)
    axes.set_xlabel(f"{profile.clock} self time, all steps (ms)")
    set_title(axes, "Time by layer")
    bare(axes, grid="x")
    axes.tick_params(axis="y", length=0)
    return legend_of(axes)


def _draw_patterns(axes: Axes, patterns: dict[str, tuple[Call, ...]], profile: DeepProfile, script: Script) -> Legend:
    labels = elide_all([script.show(name) for name in patterns], NAME_CELLS)
    for label, calls, color in zip(labels, patterns.values(), COLORS, strict=False):
        values = np.array([call.time_ns / NS_PER_MS for call in calls])
        text = f"{label} (mean {values.mean():.3g} ms)"
        at, points = _thinned(values)
        marker = "o" if len(at) <= 60 else None
        axes.plot(at, points, color=color, label=text, linewidth=1.2, marker=marker, markersize=2.6)
    axes.set_xlabel("call")
    axes.set_ylabel(f"{profile.clock} time of a call (ms)")
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", integer=True)
    set_title(axes, "Time of each call, by pattern")
    bare(axes)
    return legend_of(axes)


def _draw_memory(axes: Axes, calls: Sequence[Call], profile: DeepProfile, script: Script) -> Legend:
    allocated = np.array([call.allocated_bytes or 0 for call in calls], dtype=float)
    reserved = np.array([call.reserved_bytes or 0 for call in calls], dtype=float)
    scale, unit = next(
        ((scale, unit) for scale, unit in _UNITS if max(allocated.max(), reserved.max()) >= scale), (1, "B")
    )
    marker = "o" if len(calls) <= 60 else None
    at, points = _thinned(allocated / scale)
    axes.plot(at, points, color=COLORS[0], marker=marker, markersize=2.6, linewidth=1.2, label="allocated", zorder=3)
    if reserved.any():
        at, points = _thinned(reserved / scale)
        axes.plot(at, points, color=COLORS[1], marker=marker, markersize=2.6, linewidth=1.2, label="reserved")
    for position, call in enumerate(calls[1:], 2):
        if call.step != calls[position - 2].step and len(profile.steps) <= 30:
            axes.axvline(position - 0.5, color="#d9d9d9", linewidth=0.7, zorder=0)
    if len(calls) <= NAMED:
        names = elide_all([script.show(call.name) for call in calls], NAME_CELLS)
        axes.set_xticks(
            range(1, len(calls) + 1), names, rotation=50, ha="right", fontsize=SMALL, rotation_mode="anchor"
        )
        for tick in axes.get_xticklabels():
            tick.set_parse_math(False)
        axes.set_xlabel("layer, in order of its end")
    else:
        axes.set_xlabel("call of a layer, in order" + (" (lines: steps)" if len(profile.steps) > 1 else ""))
        axes.locator_params(axis="x", integer=True)
    axes.set_ylabel(f"memory ({unit})")
    axes.set_ylim(bottom=min(0.0, float(points.min())))
    set_title(axes, "Memory over the layers")
    bare(axes)
    return legend_of(axes)


def _thinned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions from 1 on and values, the largest of each group where there are many."""
    stride = -(-len(values) // POINTS) if len(values) else 1
    if stride == 1:
        return np.arange(1, len(values) + 1), values
    starts = np.arange(0, len(values), stride)
    return starts + 1, np.maximum.reduceat(values, starts)


def _clock_note(profile: DeepProfile) -> str:
    if profile.has_device:
        return "device time: the kernels that a layer launched, without those of the layers in it."
    return "CPU time including the cost of recording, without the layers in it."
