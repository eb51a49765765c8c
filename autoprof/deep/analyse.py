"""Summarise a trace by layers, patterns, operators and kernels.

A kernel belongs to the operators and ranges that were open in its thread at the runtime call with its correlation.
Steps and layers are the ranges in the trace, so any trace with named ranges can be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from .memory_levels import MemoryLevels
from .profile import DEFAULT_PATTERNS, MAX_CALLS, STEP_PREFIX, Call, DeepProfile, Operator, Pattern, by_time
from .reading import HostSlice, Kernel, Trace, scan

_NOT_LAYERS: Final = (STEP_PREFIX, "PyTorch Profiler", "Optimizer.zero_grad#", "profiler::")
"""Prefixes of ranges that are not layers: steps and ranges of torch's own."""


def read_trace(path: str | Path, patterns: Sequence[Pattern] = DEFAULT_PATTERNS, rank: int = 0) -> DeepProfile:
    """Read the Chrome trace of a capture, or any other of ``torch.profiler``. Raises ``OutputError`` for other files.

    A trace that was cut has lost its shortest operators, and their time with them.
    """
    return analyse(scan(Path(path)), patterns, rank)


def analyse(trace: Trace, patterns: Sequence[Pattern], rank: int) -> DeepProfile:
    """Summarise a trace."""
    slices = sorted((one for many in trace.threads.values() for one in many), key=lambda one: (one.start, -one.end))
    ranges = [one for one in slices if one.is_range]
    steps = [(one.start, number) for one in ranges if (number := _number(one.name)) is not None]
    layers = [one for one in ranges if _is_layer(one.name)]
    has_device = bool(trace.kernels)
    make = _CallFactory(trace.levels, steps, has_device)
    notes = (
        []
        if len(layers) <= MAX_CALLS
        else [f"{len(layers) - MAX_CALLS} layer calls are not counted: the limit is {MAX_CALLS}"]
    )
    notes += [] if trace.broken is None else [trace.broken]
    matched: dict[str, list[Call]] = {}
    for pattern in patterns:
        _match(pattern, slices, trace.kernels, make, matched)
    start = min((one.start for one in slices), default=0)
    end = max([one.end for one in slices] + [one.start + one.duration for one in trace.kernels], default=0)
    return DeepProfile(
        rank=rank,
        steps=tuple(dict.fromkeys(number for _, number in steps)),
        duration_ns=end - start,
        layers=tuple(make.from_slice(one) for one in layers[:MAX_CALLS]),
        patterns={name: tuple(sorted(calls, key=lambda one: one.start_ns)) for name, calls in matched.items()},
        operators=_operators(slices, has_device),
        kernels=_kernels(trace.kernels),
        has_device=has_device,
        device_memory=trace.levels.of_device,
        end_allocated_bytes=trace.levels.last("allocated"),
        end_reserved_bytes=trace.levels.last("reserved"),
        notes=tuple(notes),
    )


class _CallFactory:
    """Make ``Call`` objects from slices and kernels."""

    def __init__(self, levels: MemoryLevels, steps: Sequence[tuple[int, int]], has_device: bool) -> None:
        self._levels = levels
        self._starts = [start for start, _ in steps]
        self._numbers = [number for _, number in steps]
        self._has_device = has_device

    def step(self, at: int) -> int | None:
        """Return the number of the step at a moment."""
        index = bisect_right(self._starts, at) - 1
        return self._numbers[index] if index >= 0 else None

    def from_slice(self, one: HostSlice) -> Call:
        """Make a call from a slice. Self time of a range excludes nested ranges, of an operator all nested slices."""
        inside = one.ranges if one.is_range else one.inside
        own = one.device_inside - one.device_ranges if one.is_range else one.device_own
        return Call(
            name=one.name,
            step=self.step(one.start),
            start_ns=one.start,
            host_ns=one.end - one.start,
            host_self_ns=one.end - one.start - inside,
            device_ns=one.device_inside if self._has_device else None,
            device_self_ns=own if self._has_device else None,
            layer=_layer_around(one.parent),
            **self._levels.between(one.start, one.end),
        )

    def from_kernel(self, one: Kernel) -> Call:
        """Make a call from a kernel."""
        launcher = one.launcher
        return Call(
            name=one.name,
            step=self.step(one.start if launcher is None else launcher.start),
            start_ns=one.start,
            host_ns=None,
            host_self_ns=None,
            device_ns=one.duration,
            device_self_ns=one.duration,
            layer=_layer_around(launcher),
        )


def _match(
    pattern: Pattern,
    slices: Sequence[HostSlice],
    kernels: Sequence[Kernel],
    make: _CallFactory,
    matched: dict[str, list[Call]],
) -> None:
    """Add the outermost matching operators and ranges of a pattern; kernels if no operator matches."""
    names: dict[str, bool] = {}

    def matches(name: str) -> bool:
        if name not in names:
            names[name] = pattern.match.search(name) is not None
        return names[name]

    def outermost(one: HostSlice) -> bool:
        return matches(one.name) and not any(matches(other.name) for other in one.ancestry() if other is not one)

    found = [make.from_slice(one) for one in slices if outermost(one)]
    if not found:
        found = [make.from_kernel(kernel) for kernel in kernels if matches(kernel.name)]
    for call in found:
        series = matched.setdefault(pattern.label(call.name), [])
        if len(series) < MAX_CALLS:
            series.append(call)


def _operators(slices: Sequence[HostSlice], has_device: bool) -> tuple[Operator, ...]:
    found: dict[str, list[int]] = {}
    layers = {one.name for one in slices if one.is_range}
    for one in slices:
        if one.is_range or one.name in layers:  # with `ranges: profiler` a layer's name is also an operator's
            continue
        sums = found.setdefault(one.name, [0, 0, 0, 0, 0])
        length = one.end - one.start
        recursive = any(other.name == one.name for other in one.ancestry() if other is not one)
        sums[0] += 1
        sums[1] += 0 if recursive else length
        sums[2] += length - one.inside
        sums[3] += 0 if recursive else one.device_inside
        sums[4] += one.device_own
    rows = []
    for name, (calls, host, own, device, device_own) in found.items():
        rows.append(Operator(name, calls, host, own, *((device, device_own) if has_device else (None, None))))
    return by_time(rows)


def _kernels(kernels: Iterable[Kernel]) -> tuple[Operator, ...]:
    found: dict[str, list[int]] = {}
    for one in kernels:
        sums = found.setdefault(one.name, [0, 0])
        sums[0] += 1
        sums[1] += one.duration
    return by_time(Operator(name, calls, None, None, ns, ns) for name, (calls, ns) in found.items())


def _number(name: str) -> int | None:
    text = name.removeprefix(STEP_PREFIX)
    return int(text) if text != name and text.isdecimal() else None


def _is_layer(name: str) -> bool:
    return not name.startswith(_NOT_LAYERS)


def _layer_around(one: HostSlice | None) -> str | None:
    if one is None:
        return None
    return next((other.name for other in one.ancestry() if other.is_range and _is_layer(other.name)), None)
