"""A trace → what it says about layers, patterns, operators and kernels.

A kernel belongs to what launched it: the runtime call of its correlation, found in its thread among the operators and
ranges that were open then. Steps and layers are the ranges in the trace, so that any trace with names can be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from .memory_levels import Levels
from .profile import CALLS, DEFAULT_PATTERNS, STEP_PREFIX, Call, DeepProfile, Operator, Pattern, by_time
from .reading import Kernel, Reading, Slice, scan

_NOT_LAYERS: Final = (STEP_PREFIX, "PyTorch Profiler", "Optimizer.zero_grad#", "profiler::")
"""Ranges that are no part of a model: steps, and what torch makes of its own."""


def read_trace(path: str | Path, patterns: Sequence[Pattern] = DEFAULT_PATTERNS, rank: int = 0) -> DeepProfile:
    """Read the Chrome trace of a capture, or any other of ``torch.profiler``. Raises ``OutputError`` for other files.

    A trace that was cut has lost its shortest operators, and their time with them.
    """
    return analyse(scan(Path(path)), patterns, rank)


def analyse(reading: Reading, patterns: Sequence[Pattern], rank: int) -> DeepProfile:
    """Sum up what was read."""
    slices = sorted((one for many in reading.threads.values() for one in many), key=lambda one: (one.start, -one.end))
    ranges = [one for one in slices if one.is_range]
    steps = [(one.start, number) for one in ranges if (number := _number(one.name)) is not None]
    layers = [one for one in ranges if _is_layer(one.name)]
    has_device = bool(reading.kernels)
    make = _Calls(reading.levels, steps, has_device)
    notes = [] if len(layers) <= CALLS else [f"{len(layers) - CALLS} calls of layers are beyond what is kept"]
    notes += [] if reading.broken is None else [reading.broken]
    matched: dict[str, list[Call]] = {}
    for pattern in patterns:
        _match(pattern, slices, reading.kernels, make, matched)
    start = min((one.start for one in slices), default=0)
    end = max([one.end for one in slices] + [one.start + one.duration for one in reading.kernels], default=0)
    return DeepProfile(
        rank=rank,
        steps=tuple(dict.fromkeys(number for _, number in steps)),
        duration_ns=end - start,
        layers=tuple(make.of(one) for one in layers[:CALLS]),
        patterns={name: tuple(sorted(calls, key=lambda one: one.start_ns)) for name, calls in matched.items()},
        operators=_operators(slices, has_device),
        kernels=_kernels(reading.kernels),
        has_device=has_device,
        device_memory=reading.levels.of_device,
        end_allocated_bytes=reading.levels.last("allocated"),
        end_reserved_bytes=reading.levels.last("reserved"),
        notes=tuple(notes),
    )


class _Calls:
    """Make calls of slices."""

    def __init__(self, levels: Levels, steps: Sequence[tuple[int, int]], has_device: bool) -> None:
        self._levels = levels
        self._starts = [start for start, _ in steps]
        self._numbers = [number for _, number in steps]
        self._has_device = has_device

    def step(self, at: int) -> int | None:
        """Return the step that this moment lies in."""
        index = bisect_right(self._starts, at) - 1
        return self._numbers[index] if index >= 0 else None

    def of(self, one: Slice) -> Call:
        """Return a slice as a call. A range's own time is without the ranges in it, an operator's without either."""
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

    def of_kernel(self, one: Kernel) -> Call:
        """Return a kernel as a call."""
        by = one.by
        return Call(
            name=one.name,
            step=self.step(one.start if by is None else by.start),
            start_ns=one.start,
            host_ns=None,
            host_self_ns=None,
            device_ns=one.duration,
            device_self_ns=one.duration,
            layer=_layer_around(by),
        )


def _match(
    pattern: Pattern, slices: Sequence[Slice], kernels: Sequence[Kernel], make: _Calls, matched: dict[str, list[Call]]
) -> None:
    """Add the pattern's matches: operators and ranges that lie in no match; kernels, where no operator matches."""
    names: dict[str, bool] = {}

    def matches(name: str) -> bool:
        if name not in names:
            names[name] = pattern.match.search(name) is not None
        return names[name]

    def outermost(one: Slice) -> bool:
        return matches(one.name) and not any(matches(other.name) for other in one.around() if other is not one)

    found = [make.of(one) for one in slices if outermost(one)]
    if not found:
        found = [make.of_kernel(kernel) for kernel in kernels if matches(kernel.name)]
    for call in found:
        series = matched.setdefault(pattern.label(call.name), [])
        if len(series) < CALLS:
            series.append(call)


def _operators(slices: Sequence[Slice], has_device: bool) -> tuple[Operator, ...]:
    found: dict[str, list[int]] = {}
    layers = {one.name for one in slices if one.is_range}
    for one in slices:
        if one.is_range or one.name in layers:  # with `ranges: profiler`, a layer's name is an operator's as well
            continue
        sums = found.setdefault(one.name, [0, 0, 0, 0, 0])
        length = one.end - one.start
        recursive = any(other.name == one.name for other in one.around() if other is not one)
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


def _layer_around(one: Slice | None) -> str | None:
    if one is None:
        return None
    return next((other.name for other in one.around() if other.is_range and _is_layer(other.name)), None)
