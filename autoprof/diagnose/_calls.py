"""Statistics of calls inside steps that wait, log or compile, as plain data."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.frame import NOT_MEASURED, TRAINING_LANE, StepFrame
from ..base.names import shorten
from ..base.stats.intervals import Interval, median_from_quantiles
from ..base.units import format_count, format_ms
from ..probes import CallTable, Site, TimedCall
from ..probes.compilations import CompilationProbe, CompiledFunction
from ..resolve.launch_lag import EMPTY_QUEUE_NS
from ._bounds import NEARLY_ALL


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line of the user's code: how many such calls it made in the recorded steps, and for how long."""

    file: str
    line: int
    function: str
    call: str
    source: str
    count: int
    ns: int
    path: str = ""
    """The calls around or inside the line, as text."""
    torch_ns: int = 0
    """The part of the time in which the layers of torch, or a backward pass, run inside the line."""
    blocked_ns: int = 0
    """The part of the time in which the training thread is blocked inside the line."""

    @property
    def location(self) -> str:
        """The file and line: ``train.py:42``."""
        return format_place(self.file, self.line) if self.file else "other places"

    @property
    def label(self) -> str:
        """The source line if it is short, else the called function."""
        return f"`{self.source}`" if self.source else self.call


@dataclass(frozen=True, slots=True)
class CallStatistics:
    """Calls of one kind. ``cost_ns`` has the p50, p95, minimum and maximum of their cost in each of the last steps.

    ``mean_cost_ns`` is the mean of the same cost; ``mean_ns`` is the mean time inside the calls.
    """

    steps: int
    cost_ns: tuple[int, int, int, int]
    mean_cost_ns: int
    mean_ns: int
    sites: tuple[CallSite, ...]

    @property
    def interval(self) -> Interval:
        """The median cost and its confidence interval."""
        p50, p95, minimum, maximum = self.cost_ns
        return median_from_quantiles(p50, p95, self.steps, minimum, maximum)

    @property
    def dominant_location(self) -> str | None:
        """The location of the site with nearly all of the time; None where several sites share it."""
        first, total = self.sites[0], sum(site.ns for site in self.sites)
        return first.location if first.ns >= NEARLY_ALL * total else None

    def describe_sites(self) -> str:
        """Return the longest sites with their time in a step as text."""
        most = 3
        parts = []
        for site in self.sites[:most]:
            calls = site.count / self.steps
            times = f", {format_count(calls)} times" if calls > 1 else ""
            parts.append(f"{site.label} at {site.location} ({format_ms(site.ns / self.steps)} a step{times})")
        more = len(self.sites) - most
        return ", ".join(parts) + (f", {more} more" if more > 0 else "")

    def sites_evidence(self) -> list[dict[str, Any]]:
        """Return all sites as the evidence of a finding."""
        return [
            {
                "where": site.location,
                "function": site.function,
                "call": site.call,
                "source": site.source,
                "calls_per_step": round(site.count / self.steps, 3),
                "ns_per_step": round(site.ns / self.steps),
            }
            for site in self.sites
        ]


def summarize_calls(table: CallTable, steps: int, cost_column: int = 0) -> CallStatistics | None:
    """Return the statistics of ``steps`` recorded steps; column 0 is the time, ``cost_column`` the cost.

    None without a step.
    """
    if not steps:
        return None
    cost = table.column(cost_column, steps)
    last = len(cost) - 1
    p50, p95 = np.interp((0.5 * last, 0.95 * last), range(len(cost)), np.sort(cost))  # np.percentile imports numpy.ma
    longest = sorted(table.sites.items(), key=lambda entry: (-entry[1][1], entry[0]))[:8]
    return CallStatistics(
        steps=steps,
        cost_ns=(round(p50), round(p95), int(cost.min()), int(cost.max())),
        mean_cost_ns=round(float(cost.mean())),
        mean_ns=round(float(table.column(0, steps).mean())),
        sites=tuple(call_site(site, count, ns) for site, (count, ns) in longest),
    )


def call_site(site: Site, count: int, ns: int) -> CallSite:
    """Return a site with its source line; of a long one with the call alone where the line has it, or its begin."""
    source = linecache.getline(site.file, site.line).strip()
    longest = 80  # characters that are shown
    if len(source) > longest:
        call = re.search(rf"[\w.]*\b{re.escape(site.call)}\((?:[^()]|\([^()]*\))*\)", source) if site.call else None
        source = shorten(source if call is None else call[0], longest)
    return CallSite(*site, source, count, ns)


def format_place(file: str, line: int) -> str:
    """Return ``train.py:42``: the path from the working directory, or the last two parts of a path outside it."""
    if not file:
        return "an unknown place"
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the directory is gone; another drive
        relative = os.pardir
    short = os.path.join(*file.split(os.sep)[-2:]) if relative.startswith(os.pardir) else relative
    return f"{short}:{line}" if line else short


def idle_after_waits_ns(frame: StepFrame, begun_ns: int, waits: Iterable[TimedCall]) -> int | None:
    """Return the most that the device was idle in a step because the host had waited for it.

    After a wait the queue is empty until the host launches again. No mark shows that launch, but at the first mark
    that the device passes later than the host made it, the device has work. So the idle time is counted from the end
    of each wait to that mark, to the next wait, or to the end of the step. None without device times.
    """
    if frame.device_ns is None or frame.device_start_ns is None or frame.device_duration_ns is None:
        return None
    seen = (np.asarray(frame.layout.lanes) == TRAINING_LANE) & (frame.device_ns != NOT_MEASURED)
    host = np.concatenate((frame.start_ns[seen], (frame.start_ns + frame.host_ns)[seen], (0, frame.duration_ns)))
    starts, lengths = frame.device_start_ns[seen], frame.device_ns[seen]
    lag = np.concatenate((starts, starts + lengths, (0, frame.device_duration_ns))) - host
    busy = np.sort(host[lag - lag.min() > EMPTY_QUEUE_NS])
    times = [(start_ns - begun_ns, end_ns - begun_ns) for _, start_ns, end_ns in waits]
    next_starts = [start for start, _ in times[1:]] + [frame.duration_ns]
    ends = np.array([end for _, end in times], dtype=np.int64)
    busy_again = np.append(busy, frame.duration_ns)[np.searchsorted(busy, ends)]
    return int(np.maximum(np.minimum(busy_again, next_starts) - ends, 0).sum())


@dataclass(frozen=True, slots=True)
class CompileStatistics:
    """Compilations in the recorded steps. Those steps took ``run_ns``, of which compilation took ``ns``."""

    steps: int
    run_ns: int
    compiled_steps: int
    ns: int
    functions: tuple[CompiledFunction, ...] = ()


def summarize_compilations(counted: CompilationProbe, steps: int, run_ns: int) -> CompileStatistics:
    """Return the statistics of the compilations that were counted in these recorded steps."""
    recompiled = [one for one in counted.functions.values() if one.count or one.gave_up]
    recompiled.sort(key=lambda one: (-one.count, one.file, one.line))
    functions = tuple(replace(one, function=one.function or "a function") for one in recompiled[:8])
    return CompileStatistics(steps, run_ns, counted.steps, counted.ns, functions)
