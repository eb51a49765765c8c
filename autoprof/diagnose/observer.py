"""Frames → what the rules need beyond a summary, in memory that does not grow with the steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from heapq import heappush, heappushpop
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from .._stats import Aggregate
from ..frame import StepFrame
from ..summary import Summary
from .evidence import Evidence, Facts, LongStep
from .ranks import read_ranks

if TYPE_CHECKING:
    from .._storage.runs import Run

LONGEST: Final = 8
"""Longest steps kept: enough to tell a habit and its cause."""
READINGS: Final = 64
"""Stretches of the run whose least reading is kept; when there are more, each two become one."""
CLOCK: Final = "gpu_sm_clock_mhz"
"""The reading of a frame that tells the device's clock."""
CLOCKS: Final = 256
"""Readings of it that are kept, the last ones."""
KINDS: Final = ("allocated_bytes", "rss_bytes")
"""Readings that tell of growth, the better one first: a device's allocator counts tensors, the resident set all."""


class Observer:
    """Keep the longest steps and the course of the memory. Belongs to the training thread."""

    def __init__(self) -> None:
        self._longest: list[tuple[int, int, LongStep]] = []
        self._kind: str | None = None
        self._readings: list[tuple[int, int]] = []
        self._stride = 1
        self._in_stride = 0
        self._clocks: deque[float] = deque(maxlen=CLOCKS)

    def add(self, frame: StepFrame) -> None:
        """Take one frame; a warm-up frame tells nothing."""
        if frame.warmup:
            return
        step_ns = frame.step_ns
        if len(self._longest) < LONGEST or step_ns > self._longest[0][0]:
            total = frame.total_ns.copy()  # a view would keep the whole matrix of its steps alive
            long = LongStep(frame.step, step_ns, frame.layout, total, frame.scalars.get(CLOCK))
            push = heappush if len(self._longest) < LONGEST else heappushpop
            push(self._longest, (step_ns, frame.step, long))
        if frame.scalars and CLOCK in frame.scalars:
            self._clocks.append(frame.scalars[CLOCK])
        if frame.memory:
            self._read(frame.step, frame.memory)

    def _read(self, step: int, memory: Mapping[str, int]) -> None:
        if self._kind is None:
            self._kind = next((kind for kind in KINDS if kind in memory), None)
        if self._kind is None or self._kind not in memory:
            return
        reading = (step, memory[self._kind])
        if self._in_stride and reading[1] < self._readings[-1][1]:
            self._readings[-1] = reading
        elif not self._in_stride:
            self._readings.append(reading)
        self._in_stride = (self._in_stride + 1) % self._stride
        if len(self._readings) == READINGS and not self._in_stride:
            pairs = zip(self._readings[::2], self._readings[1::2], strict=True)
            self._readings = [min(pair, key=lambda one: one[1]) for pair in pairs]
            self._stride *= 2

    def longest(self) -> tuple[LongStep, ...]:
        """Return the longest steps, the longest first."""
        return tuple(entry[2] for entry in sorted(self._longest, key=lambda entry: (-entry[0], entry[1])))

    def evidence(self, summary: Summary, facts: Facts) -> Evidence:
        """Return what the rules judge."""
        clock = median(self._clocks) if self._clocks else None
        return Evidence(summary, facts, self.longest(), tuple(self._readings), self._kind, clock)


def evidence_of_run(run: Run) -> Evidence:
    """Return the evidence of a saved run: its summary, or what its records come to, and the facts it noted."""
    observer, aggregate = Observer(), Aggregate()
    for frame in run.frames if run.ranks else ():
        observer.add(frame)
        if run.summary is None:
            aggregate.add(frame)
    return observer.evidence(run.summary or aggregate.summary(), facts_of_run(run, observer))


def facts_of_run(run: Run, observer: Observer) -> Facts:
    """Return what a saved run noted, its ranks compared anew: they may have written on after rank 0 had ended."""
    facts = facts_of(run.info)
    if facts.world_size <= 1:
        return facts
    longest = tuple(long.step for long in observer.longest())
    return replace(facts, rank=0, ranks=read_ranks(run.path, facts.world_size, longest=longest))


def facts_of(info: Mapping[str, Any]) -> Facts:
    """Return the facts in ``run.json``; of a run that did not get so far as to note them, what its start says."""
    if info.get("facts"):
        return Facts.from_dict(info["facts"])
    sample = (info.get("config") or {}).get("sample") or {}
    return Facts(budget=sample.get("budget"), world_size=info.get("world_size") or 1)
