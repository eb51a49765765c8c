"""Rule ``memory-growth``: memory grows throughout the run and does not slow down.

Finds, above a bound:

- the smallest reading of each third of the run rises and keeps rising to the end, in resident memory also beyond what
  allocators take at first. So does the line through all readings, and resident memory raises the process's peak as
  well. The variable that grows is named, with the function that holds it: 5 % and 16 MiB.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from ...base.stats.intervals import slope
from ...base.summary import Finding
from ...base.units import format_bytes
from .. import Evidence, Experiment, Rule, abstain
from .._bounds import MOST, SEVERAL
from .._calls import format_place
from .._evidence import enough_growth
from .._thresholding import is_above

MIN_READINGS: Final = 4
"""Readings needed in each third of the run: each is the smallest one of a stretch."""

Reading = tuple[int, int]
"""A step, and bytes."""


def judge(run: Evidence) -> Finding | None:
    """Judge the smallest readings of the run's thirds, and the line through all readings.

    The line must rise significantly as well, so that scattered readings are no finding; and of resident memory the
    highest level must rise with it.
    """
    # Growth rate of the second half over that of the first: caches that fill slow down, a leak does not.
    steady = 1 / SEVERAL
    kind, readings = run.memory_kind, run.memory
    if kind is None:
        return abstain("memory-growth", "memory readings", "a device or a system that reports its memory")
    parts = _thirds(readings)
    fewest = min(map(len, parts))
    if fewest < MIN_READINGS:
        missing = f"memory readings: {MIN_READINGS} needed in each third of the run, {fewest} so far"
        return abstain("memory-growth", missing, "let the run continue")
    first, middle, last = (min(part, key=lambda one: (one[1], one[0])) for part in parts)
    grown = last[1] - first[1]
    peaks = dict(zip(run.memory, run.memory_peaks, strict=True)) if run.memory_peaks else None
    peak_rise = None if peaks is None else peaks[last] - peaks[first]
    per_step = grown / max(last[0] - first[0], 1)
    early, late = (_rate(*pair) for pair in ((first, middle), (middle, last)))
    enough = enough_growth(first[1])
    if not is_above(grown, enough) or early <= 0 or not is_above(late, steady * early):
        return None
    if slope(parts[2]).high < steady * early:  # it has ceased
        return None
    line = slope(readings)
    evidence = {
        "kind": kind,
        "first_bytes": first[1],
        "last_bytes": last[1],
        "bytes_per_step": round(per_step),
        "bytes_per_step_low": round(line.low),
        "bytes_per_step_high": round(line.high),
    }
    evidence |= {} if peak_rise is None else {"peak_rise_bytes": peak_rise}
    if peak_rise is not None and peak_rise < MOST * grown:
        missing = (
            f"inconclusive: {kind} grew by {format_bytes(grown)}, but the process's peak only by "
            f"{format_bytes(peak_rise)}: each step may use again memory that was freed before"
        )
        return abstain("memory-growth", missing, "a longer run: a leak raises the peak as well", evidence)
    used = run.facts.heap_growth_bytes
    if not run.facts.kept and peaks is not None and used is not None and used < enough:
        missing = (
            f"inconclusive: {kind} grew by {format_bytes(grown)}, but the memory in use by {format_bytes(max(used, 0))}"
        )
        advice = (
            "a longer run: the C library keeps memory that was freed, most of all where sizes differ from step to step"
        )
        return abstain("memory-growth", missing, advice, {**evidence, "used_bytes": used})
    if not run.facts.kept and peaks is not None and last[1] - middle[1] < enough:
        missing = f"inconclusive: {kind} grew by {format_bytes(grown)}, most of it in the first readings"
        return abstain("memory-growth", missing, "a longer run: allocators fill in the first steps", evidence)
    if line.low * (readings[-1][0] - readings[0][0]) < enough:
        missing = f"inconclusive: {kind} grew by {format_bytes(grown)}, but the readings scatter too much"
        return abstain("memory-growth", missing, "a longer run distinguishes a leak from a cache that fills", evidence)
    capacity = run.facts.memory_capacity_bytes
    full = "" if capacity is None else f"; full after about {max(capacity - last[1], 0) / per_step:,.0f} more steps"
    return Finding(
        "memory-growth",
        "warning",
        f"{kind.removesuffix('_bytes')} memory rose from {format_bytes(first[1])} in step {first[0]} to "
        f"{format_bytes(last[1])} in step {last[0]}, {format_bytes(per_step)} a step, and is still growing{full}"
        f"{_describe_kept(run)}",
        _advise(run),
        name=run.facts.kept[0].variable if run.facts.kept else None,
        evidence=evidence,
    )


def _thirds(readings: Sequence[Reading]) -> tuple[Sequence[Reading], Sequence[Reading], Sequence[Reading]]:
    """Return the readings of each third of the run, by their steps: a run records more steps at its begin."""
    steps = [step for step, _ in readings]
    begin, end = (steps[0], steps[-1] + 1) if steps else (0, 0)
    one, two = (bisect_left(steps, begin + part * (end - begin) / 3) for part in (1, 2))
    return readings[:one], readings[one:two], readings[two:]


def _advise(run: Evidence) -> str:
    """Return the advice for the variables that grow; without one the memory may be anything."""
    if not run.facts.kept:
        collects = run.facts.collects or run.facts.collections
        cycles = "" if collects else "objects that refer to one another are never freed after gc.disable(); "
        return (
            f"{cycles}look for objects that live on after a step: a list of losses or outputs without .detach() or "
            ".item(), a growing cache"
        )
    if run.facts.kept[0].kind == "graph":
        return "add numbers and not tensors there: .item(), or .detach() where the values are needed"
    return "keep only the last elements there, or numbers in place of tensors and arrays; or empty it now and then"


def _describe_kept(run: Evidence) -> str:
    """Return the clause on the variables that grow; empty where none was seen."""
    said = ""
    for one in run.facts.kept:
        is_graph = one.kind == "graph"
        keeps = "refers to the graphs of earlier steps" if is_graph else f"holds {one.count:,} elements, and grows"
        said += f"; {one.variable} ({format_place(one.file, one.line)}) {keeps}"
    return said


def _rate(one: tuple[int, int], other: tuple[int, int]) -> float:
    return (other[1] - one[1]) / max(other[0] - one[0], 1)


RULE = Rule(
    "memory-growth",
    judge,
    order=150,
    experiment=Experiment("tensors.kept", value=False, quantity="held_bytes"),
)
