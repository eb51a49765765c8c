"""The result of a deep capture as data: calls of layers and patterns, operators, kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

STEP_PREFIX: Final = "ProfilerStep#"
"""Prefix of a step in the trace, the same as torch.profiler's, so that other tools find the steps."""
MAX_CALLS: Final = 200_000
"""Calls kept of all layers, and of each pattern."""
_PHASE: Final = re.compile(r" \[(backward|recompute)\]$")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A group of operators, kernels and ranges: those whose name contains a match."""

    name: str
    match: re.Pattern[str]

    def label(self, matched: str) -> str:
        """Return the series of a matched name; backward and recompute are separate series."""
        phase = _PHASE.search(matched)
        return self.name + (phase[0] if phase else "")


SEED_PATTERNS: Final = (
    Pattern("aten::_flash_attention_forward", re.compile(r"^aten::_flash_attention_forward$")),
    Pattern("spatial block", re.compile(r"(?i)spatial[ _/.-]?\w*block")),
    Pattern("temporal block", re.compile(r"(?i)temporal[ _/.-]?\w*block")),
    Pattern("cogvideo block", re.compile(r"(?i)cogvideo\w*[ _/.-]?\w*block")),
)
"""The patterns of the original ProfilerWrapper."""
DEFAULT_PATTERNS: Final = (
    *SEED_PATTERNS,
    Pattern("attention on the CPU", re.compile(r"^aten::_scaled_dot_product_\w+_for_cpu$")),
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a layer, or one match of a pattern.

    ``start_ns`` counts from the start of the capture. ``device_ns`` is the sum of the kernels launched inside;
    concurrent kernels on two streams both count. ``self`` excludes nested ranges (for an operator: nested operators).
    Memory is the device allocator's, or the CPU's allocations since the start of the capture: ``allocated_bytes`` and
    ``reserved_bytes`` at the end of the call, ``grown_bytes`` over the call, ``peak_bytes`` inside. None: unmeasured.
    """

    name: str
    step: int | None
    start_ns: int
    host_ns: int | None
    host_self_ns: int | None
    device_ns: int | None = None
    device_self_ns: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    grown_bytes: int | None = None
    peak_bytes: int | None = None
    layer: str | None = None
    """The innermost surrounding layer."""

    @property
    def time_ns(self) -> int:
        """Device time if there is a device, else host time."""
        return self.device_ns if self.device_ns is not None else self.host_ns or 0


@dataclass(frozen=True, slots=True)
class Operator:
    """All calls of an operator, or of a kernel (without host time)."""

    name: str
    calls: int
    host_ns: int | None
    host_self_ns: int | None
    device_ns: int | None
    device_self_ns: int | None


@dataclass(frozen=True, slots=True)
class LayerTotal:
    """All calls of one layer."""

    name: str
    calls: int
    host_ns: int
    host_self_ns: int
    device_ns: int | None
    device_self_ns: int | None
    grown_bytes: int | None
    """The maximum over its calls."""
    peak_bytes: int | None

    @property
    def time_ns(self) -> int:
        """Device time if there is a device, else host time."""
        return self.device_ns if self.device_ns is not None else self.host_ns


@dataclass(frozen=True, slots=True)
class DeepProfile:
    """One capture. ``layers`` and the calls of each pattern are ordered by time."""

    rank: int
    steps: tuple[int, ...]
    duration_ns: int
    layers: tuple[Call, ...]
    patterns: dict[str, tuple[Call, ...]]
    operators: tuple[Operator, ...]
    kernels: tuple[Operator, ...]
    has_device: bool
    device_memory: bool
    end_allocated_bytes: int | None = None
    end_reserved_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def clock(self) -> str:
        """The clock of the figures: ``device`` or ``CPU``."""
        return "device" if self.has_device else "CPU"

    def layer_totals(self) -> tuple[LayerTotal, ...]:
        """Return the totals of each layer, in the order of first calls."""
        found: dict[str, list[Call]] = {}
        for call in self.layers:
            found.setdefault(call.name, []).append(call)
        return tuple(_total(name, calls) for name, calls in found.items())

    def memory_calls(self) -> tuple[Call, ...]:
        """Return the layer calls with known memory, in the order of their ends."""
        known = (one for one in self.layers if one.allocated_bytes is not None)
        return tuple(sorted(known, key=lambda one: one.start_ns + (one.host_ns or 0)))


def joined(profiles: Sequence[DeepProfile]) -> DeepProfile:
    """Concatenate captures of one program in order."""
    if len(profiles) == 1:
        return profiles[0]
    patterns: dict[str, tuple[Call, ...]] = {}
    layers: list[Call] = []
    offset_ns = 0
    for one in profiles:
        for name, calls in one.patterns.items():
            patterns[name] = (patterns.get(name, ()) + _moved(calls, offset_ns))[-MAX_CALLS:]
        layers += _moved(one.layers, offset_ns)
        offset_ns += one.duration_ns + 1
    last = profiles[-1]
    return DeepProfile(
        rank=last.rank,
        steps=tuple(step for one in profiles for step in one.steps),
        duration_ns=sum(one.duration_ns for one in profiles),
        layers=tuple(layers[-MAX_CALLS:]),
        patterns=patterns,
        operators=_merged(one.operators for one in profiles),
        kernels=_merged(one.kernels for one in profiles),
        has_device=any(one.has_device for one in profiles),
        device_memory=any(one.device_memory for one in profiles),
        end_allocated_bytes=last.end_allocated_bytes,
        end_reserved_bytes=last.end_reserved_bytes,
        notes=tuple(dict.fromkeys(note for one in profiles for note in one.notes)),
    )


def _moved(calls: Iterable[Call], ns: int) -> tuple[Call, ...]:
    return tuple(replace(call, start_ns=call.start_ns + ns) for call in calls)


def _merged(tables: Iterable[tuple[Operator, ...]]) -> tuple[Operator, ...]:
    found: dict[str, Operator] = {}
    for row in (row for table in tables for row in table):
        known = found.get(row.name)
        found[row.name] = row if known is None else Operator(
            row.name,
            known.calls + row.calls,
            _sum((known.host_ns, row.host_ns)),
            _sum((known.host_self_ns, row.host_self_ns)),
            _sum((known.device_ns, row.device_ns)),
            _sum((known.device_self_ns, row.device_self_ns)),
        )  # fmt: skip
    return by_time(found.values())


def by_time(rows: Iterable[Operator]) -> tuple[Operator, ...]:
    """Sort operators by device self time, then host self time, largest first."""
    return tuple(sorted(rows, key=lambda row: (-(row.device_self_ns or 0), -(row.host_self_ns or 0), row.name)))


def _total(name: str, calls: Sequence[Call]) -> LayerTotal:
    grown = [call.grown_bytes for call in calls if call.grown_bytes is not None]
    peaks = [call.peak_bytes for call in calls if call.peak_bytes is not None]
    return LayerTotal(
        name=name,
        calls=len(calls),
        host_ns=sum(call.host_ns or 0 for call in calls),
        host_self_ns=sum(call.host_self_ns or 0 for call in calls),
        device_ns=_sum(call.device_ns for call in calls),
        device_self_ns=_sum(call.device_self_ns for call in calls),
        grown_bytes=max(grown, default=None),
        peak_bytes=max(peaks, default=None),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
