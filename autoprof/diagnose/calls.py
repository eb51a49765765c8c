"""What calls in the step cost: those that wait for the device, and those that log. From tables to plain numbers."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .._capture.probes.calls import Call, CallTable, Site
from .._resolve.launch_lag import EMPTY_QUEUE_NS
from ..frame import NOT_MEASURED, TRAINING_LANE, StepFrame
from .interval import Interval

SITES: Final = 8
"""Sites kept in the facts, those with the most time."""
SOURCE: Final = 60
"""Characters of a line of source that are shown; a longer one is named by what it calls."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """One line of the user's code: how often it made such calls in the recorded steps, and for how long."""

    file: str
    line: int
    function: str
    call: str
    source: str
    count: int
    ns: int

    @property
    def where(self) -> str:
        """The place as people write it: ``train.py:42``."""
        return f"{shorten_path(self.file)}:{self.line}" if self.file else "other places"

    @property
    def what(self) -> str:
        """The line of source where it is short, else what it calls."""
        return f"`{self.source}`" if self.source else self.call


@dataclass(frozen=True, slots=True)
class CallFacts:
    """The calls of one kind. ``cost`` is what they cost a step: p50, p95, least and most of its last steps.

    ``mean_cost_ns`` is the mean of the same, ``mean_ns`` that of the time spent in the calls.
    """

    steps: int
    cost_ns: tuple[int, int, int, int]
    mean_cost_ns: int
    mean_ns: int
    sites: tuple[CallSite, ...]

    @property
    def interval(self) -> Interval:
        """The median of the cost, and where it may lie."""
        p50, p95, least, most = self.cost_ns
        return Interval.of(p50, p95, self.steps, least, most)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CallFacts:
        """Read back what ``dataclasses.asdict`` made."""
        sites = tuple(CallSite(**site) for site in data["sites"])
        return cls(**{**data, "cost_ns": tuple(data["cost_ns"]), "sites": sites})


def facts_of_calls(table: CallTable, column: int = 0) -> CallFacts | None:
    """Return what a table comes to, its ``column`` being the cost and the first the time; None without a step."""
    if not table.steps:
        return None
    cost = table.column(column)
    p50, p95 = np.percentile(cost, (50, 95))
    longest = sorted(table.sites.items(), key=lambda entry: (-entry[1][1], entry[0]))[:SITES]
    return CallFacts(
        steps=table.recorded_steps,
        cost_ns=(round(p50), round(p95), int(cost.min()), int(cost.max())),
        mean_cost_ns=round(float(cost.mean())),
        mean_ns=round(float(table.column(0).mean())),
        sites=tuple(_describe(site, count, ns) for site, (count, ns) in longest),
    )


def _describe(site: Site, count: int, ns: int) -> CallSite:
    source = linecache.getline(site.file, site.line).strip() if site.file else ""
    return CallSite(*site, source if len(source) <= SOURCE else "", count, ns)


def shorten_path(file: str) -> str:
    """Return the path below the working directory, or the last two parts of another one."""
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):  # the directory is gone; another drive
        below = os.pardir
    return os.path.join(*file.split(os.sep)[-2:]) if below.startswith(os.pardir) else below


def dry_ns(frame: StepFrame, begun_ns: int, calls: Iterable[Call]) -> int | None:
    """Return for how long at most the device stood still in a step because the host had waited for it.

    When a wait is over the queue is empty; it stays so until the host launches again. When that is, no mark tells; but
    at the first mark that the device passes later than the host made it, it has work. So it is counted from the end of
    each wait to that mark, to the next wait, or to the end of the step. None where the step has no device times.
    """
    if frame.device_ns is None or frame.device_start_ns is None or frame.device_duration_ns is None:
        return None
    seen = (np.asarray(frame.layout.lanes) == TRAINING_LANE) & (frame.device_ns != NOT_MEASURED)
    host = np.concatenate((frame.start_ns[seen], (frame.start_ns + frame.host_ns)[seen], (0, frame.duration_ns)))
    begins, length = frame.device_start_ns[seen], frame.device_ns[seen]
    ahead = np.concatenate((begins, begins + length, (0, frame.device_duration_ns))) - host
    busy = np.sort(host[ahead - ahead.min() > EMPTY_QUEUE_NS])
    waits = [(start_ns - begun_ns, end_ns - begun_ns) for _, start_ns, end_ns in calls]
    until = [start for start, _ in waits[1:]] + [frame.duration_ns]
    ends = np.array([end for _, end in waits], dtype=np.int64)
    at = np.searchsorted(busy, ends)
    again = np.append(busy, frame.duration_ns)[at]
    return int(np.maximum(np.minimum(again, until) - ends, 0).sum())
