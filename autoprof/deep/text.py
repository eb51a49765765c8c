"""Render a capture as tables of plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from .._reports.text import cells, crop, fit, safe
from .._units import NS_PER_MS, count, format_bytes, format_percent
from .profile import DeepProfile, Operator

ROWS: Final = 40
"""Most layers and operators shown; the rest is counted."""
NAME: Final = 34
LEAST: Final = 16
COLUMN: Final = 12


def render_profile(profile: DeepProfile, *, width: int = 100, rows: int = ROWS) -> list[str]:
    """Return all tables of a capture as lines of at most ``width`` cells."""
    lines = [f"Deep capture of {describe_steps(profile)}, rank {profile.rank}", _describe_clocks(profile)]
    lines += ["", *_layers(profile, width, rows)]
    if profile.patterns:
        lines += ["", *_patterns(profile, width)]
    lines += ["", *_operators("operators", profile.operators, profile.has_device, width, rows)]
    if profile.kernels:
        lines += ["", *_operators("kernels on the device", profile.kernels, True, width, rows)]
    lines += [f"note: {note}" for note in profile.notes]
    return [crop(safe(line), width).rstrip() for line in lines]


def render_memory(profile: DeepProfile, *, calls: int = 100_000) -> list[str]:
    """Return the memory levels as lines, one a layer call, step by step."""
    source = "device allocator" if profile.device_memory else "CPU, allocated since the capture began"
    lines = [f"Memory at the end of each layer, rank {profile.rank} ({source})"]
    step: object = object()
    shown = profile.memory_calls()
    for at, call in enumerate(shown[:calls], 1):
        assert call.allocated_bytes is not None
        if call.step != step:
            step = call.step
            lines += ["", "step unknown" if step is None else f"step {step}"]
            lines.append(
                f"{'':>6} {fit('layer', NAME)}{'allocated':>{COLUMN}}{'reserved':>{COLUMN}}{'grown':>{COLUMN}}"
            )
        reserved = "-" if call.reserved_bytes is None else format_bytes(call.reserved_bytes)
        lines.append(
            f"{at:>6} {fit(safe(call.name), NAME)}{format_bytes(call.allocated_bytes):>{COLUMN}}{reserved:>{COLUMN}}"
            f"{format_bytes(call.grown_bytes or 0):>{COLUMN}}"
        )
    if len(shown) > calls:
        lines.append(f"and {count(len(shown) - calls, 'more call')}")
    if profile.end_allocated_bytes is not None:
        reserved = (
            "" if profile.end_reserved_bytes is None else f", {format_bytes(profile.end_reserved_bytes)} reserved"
        )
        lines += ["", f"at the end: {format_bytes(profile.end_allocated_bytes)} allocated{reserved}"]
    return lines


def describe_steps(profile: DeepProfile) -> str:
    """Describe the captured steps, such as ``steps 3 to 5``."""
    steps = profile.steps
    if not steps:
        return "one block"
    if len(steps) == 1:
        return f"step {steps[0]}"
    if steps == tuple(range(steps[0], steps[-1] + 1)):
        return f"steps {steps[0]} to {steps[-1]}"
    return f"{len(steps)} steps from {steps[0]} to {steps[-1]}"


def _describe_clocks(profile: DeepProfile) -> str:
    if profile.has_device:
        return "device: sum of the kernels by launcher; CPU: host time; both in ms, including the cost of recording"
    return "ms; CPU: host time, including the cost of recording; no device"


def _layers(profile: DeepProfile, width: int, rows: int) -> Iterator[str]:
    totals = profile.layer_totals()
    if not totals:
        yield "layers: none; name layers with targets or record(name, function)"
        return
    device, memory = profile.has_device, any(one.grown_bytes is not None for one in totals)
    head = ["calls", *(["device", "self"] if device else []), "CPU", "self", "of all", *(["grown"] if memory else [])]
    lines = []
    for one in totals[:rows]:
        own, clock = (one.device_self_ns, _device_total(profile)) if device else (one.host_self_ns, profile.duration_ns)
        values = [str(one.calls)]
        values += [_ms(one.device_ns), _ms(one.device_self_ns)] if device else []
        values += [_ms(one.host_ns), _ms(one.host_self_ns), format_percent((own or 0) / clock) if clock else "-"]
        values += [_bytes(one.grown_bytes)] if memory else []
        lines.append((one.name, values))
    yield from _table("layers, in order", head, lines, width)
    if len(totals) > rows:
        yield f"and {count(len(totals) - rows, 'more layer')}"
    yield "of all: self time as a share of the " + ("device time" if device else "captured time")


def _patterns(profile: DeepProfile, width: int) -> Iterator[str]:
    lines = []
    for name, calls in profile.patterns.items():
        times = [call.time_ns for call in calls]
        mean = sum(times) / len(times)
        lines.append((name, [str(len(calls)), _ms(sum(times)), _ms(mean), _ms(min(times)), _ms(max(times))]))
    yield from _table(f"patterns, {profile.clock} ms", ["calls", "total", "mean", "min", "max"], lines, width)


def _operators(title: str, table: Sequence[Operator], device: bool, width: int, rows: int) -> Iterator[str]:
    host = any(row.host_ns is not None for row in table)
    head = ["calls", *(["device", "self"] if device else []), *(["CPU", "self"] if host else [])]
    lines = []
    for row in table[:rows]:
        values = [str(row.calls)]
        values += [_ms(row.device_ns), _ms(row.device_self_ns)] if device else []
        values += [_ms(row.host_ns), _ms(row.host_self_ns)] if host else []
        lines.append((row.name, values))
    yield from _table(title, head, lines, width)
    if len(table) > rows:
        yield f"and {len(table) - rows} more"


def _table(title: str, head: Sequence[str], lines: Iterable[tuple[str, Sequence[str]]], width: int) -> Iterator[str]:
    name = max(min(width - COLUMN * len(head), 70), LEAST)
    column = min(COLUMN, max((width - name) // len(head), 1))
    yield fit(title, name) + "".join(f"{word:>{column}}" for word in head)
    for text, values in lines:
        yield fit(safe(text), name) + "".join(" " * (column - cells(value)) + value for value in values)


def _device_total(profile: DeepProfile) -> int:
    return sum(row.device_ns or 0 for row in profile.kernels)


def _ms(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / NS_PER_MS:.3f}"


def _bytes(count: int | None) -> str:
    return "-" if count is None else format_bytes(count)
