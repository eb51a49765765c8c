"""The summary's memory table, from the footprint of the model and the readings of spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...base.frame import TRAINING_LANE, Phase
from ...base.summary import MemoryRow, Summary


def tabulate(summary: Summary, held: Mapping[str | None, MemoryRow], failure: str | None = None) -> Summary:
    """Return the summary with its memory table: the whole run, then each name, the largest first.

    ``held`` are the rows of ``Footprint``.
    """
    device = "allocated_bytes" in summary.memory
    names = _names(summary, held, device)
    if not names and not held and failure is None:
        return summary
    whole = replace(
        held.get(None, MemoryRow(None)),
        activation_bytes=_most_grown(summary) if device else None,
        peak_bytes=summary.memory.get("peak_bytes"),
    )
    return replace(summary, memory_table=(whole, *names), unmeasured=_reasons(whole, device, failure))


def _names(summary: Summary, held: Mapping[str | None, MemoryRow], device: bool) -> list[MemoryRow]:
    found = {name: row for name, row in held.items() if name is not None}
    measured = {row.name for row in summary.rows if row.memory_growth_bytes is not None}
    for row in summary.rows if device else ():
        if row.lane != TRAINING_LANE or row.memory_peak_bytes is None:
            continue
        if row.memory_growth_bytes is None and row.name not in measured:
            continue  # without memory: true; it only contains a span with it
        one = found.get(row.name) or MemoryRow(row.name)
        found[row.name] = replace(
            one,
            activation_bytes=row.memory_growth_bytes if row.phase is Phase.FORWARD else one.activation_bytes,
            peak_bytes=max(row.memory_peak_bytes, one.peak_bytes or 0),
        )
    return sorted(found.values(), key=lambda row: (-row.held_bytes - max(row.activation_bytes or 0, 0), row.name or ""))


def _most_grown(summary: Summary) -> int | None:
    """Add up the growth of the outermost measured forwards; it includes the inner ones."""
    rows = [
        row
        for row in summary.rows
        if row.phase is Phase.FORWARD and row.lane == TRAINING_LANE and row.memory_growth_bytes is not None
    ]
    names = {row.name for row in rows}
    outer = [row.memory_growth_bytes or 0 for row in rows if row.parent not in names or row.parent == row.name]
    return sum(outer) if outer else None


def _reasons(whole: MemoryRow, device: bool, failure: str | None) -> dict[str, str]:
    no_step = "no optimizer step was seen"
    no_allocator = "on the CPU torch keeps no statistics of its allocator"
    reasons = {}
    if whole.parameter_bytes is None:
        reasons["parameters"] = "the model was not available" if failure is None else failure
    if whole.gradient_bytes is None:
        reasons["gradients"] = no_step if failure is None else failure
    if whole.state_bytes is None:
        reasons["optimizer state"] = no_step if failure is None else failure
    if not device:
        reasons["activations"] = (
            f"{no_allocator}; hooks on saved tensors could count them, but with hooks autograd no longer detects that "
            "a saved tensor was changed in place"
        )
        reasons["allocated, reserved and their peaks"] = no_allocator
    elif whole.activation_bytes is None:
        reasons["activations"] = "no target has memory: true"
    return reasons
