"""The slowest of many tiny steps, with and without autoprof, and whose doing they are."""

from __future__ import annotations

import contextlib
import gc
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, perf_counter_ns
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import torch

import autoprof
from autoprof._metrics.telemetry import PERIOD_S
from autoprof.probes.stacks import StackProbe

from .engine import deliver
from .ours import Discard
from .workloads import tiny_layers, with_phases

SLOW: Final = 5
"""A step is slow when it takes this many times the median."""
CHUNK: Final = 250
"""Steps of one lane in a row; the lanes take turns."""


def _nothing() -> None:
    pass


@dataclass
class _Lane:
    """A model with or without a session that stays open throughout."""

    step: Callable[[], object]
    end: Callable[[], object] = _nothing
    close: Callable[[], object] = _nothing
    flush: Callable[[], object] = _nothing
    wall: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    own_wall: list[int] = field(default_factory=list)
    own_busy: list[int] = field(default_factory=list)
    collections: list[int] = field(default_factory=lambda: [0, 0, 0])
    collecting_ns: int = 0


class _Collector:
    """Count the garbage collector's runs for the lane whose turn it is."""

    def __init__(self) -> None:
        self.lane: _Lane | None = None
        self._began = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if self.lane is None:
            return
        if phase == "start":
            self._began = perf_counter_ns()
        else:
            self.lane.collections[info["generation"]] += 1
            self.lane.collecting_ns += perf_counter_ns() - self._began


def _bare() -> _Lane:
    return _Lane(tiny_layers(torch.device("cpu")).step)


def _profiled(**changes: Any) -> _Lane:
    workload = tiny_layers(torch.device("cpu"))
    with contextlib.redirect_stdout(Discard()):
        session = autoprof.instrument(workload.model, with_phases(workload.config, None, **changes))
    return _Lane(workload.step, session.step, session.close, lambda: deliver(session))


def _turn(lane: _Lane, count: int) -> None:
    """Run steps of one lane. CPU time beside wall time separates work from waiting for the processor."""
    wall, busy = perf_counter_ns, time.thread_time_ns
    for _ in range(count):
        wall_0, busy_0 = wall(), busy()
        lane.step()
        wall_1, busy_1 = wall(), busy()
        lane.end()
        wall_2, busy_2 = wall(), busy()
        lane.wall.append(wall_2 - wall_0)
        lane.busy.append(busy_2 - busy_0)
        lane.own_wall.append(wall_2 - wall_1)
        lane.own_busy.append(busy_2 - busy_1)


def run(count: int = 20_000) -> dict[str, Any]:
    """Run so many steps a lane and describe the slow ones."""
    folder = tempfile.mkdtemp(prefix="autoprof-bench-")
    every_sink: dict[str, Any] = {"console": {}, "log": {}, "jsonl": {}, "memory_plot": {}}
    lanes = {"bare": _bare(), "session": _profiled(sinks={}), "sinks": _profiled(sinks=every_sink, output=folder)}
    collector = _Collector()
    gc.callbacks.append(collector)
    try:
        for lane in lanes.values():
            _turn(lane, CHUNK)
            for column in (lane.wall, lane.busy, lane.own_wall, lane.own_busy):
                column.clear()
        gc.collect()
        for _ in range(count // CHUNK):
            for lane in lanes.values():
                collector.lane = lane
                _turn(lane, CHUNK)
                collector.lane = None
    finally:
        gc.callbacks.remove(collector)
        with contextlib.redirect_stdout(Discard()):
            for lane in lanes.values():
                lane.close()
        shutil.rmtree(folder, ignore_errors=True)
    return {name: _describe(lane) for name, lane in lanes.items()} | {"survivors": survivors()}


def _describe(lane: _Lane) -> dict[str, Any]:
    """Return the tail of a lane. A slow step is autoprof's doing when its own part did the work that made it slow."""
    wall, own_busy = np.array(lane.wall), np.array(lane.own_busy)
    middle = float(np.median(wall))
    slow = wall > SLOW * middle
    ours = slow & (own_busy - np.median(own_busy) > (SLOW - 1) / 2 * middle)
    return {
        "steps": len(wall),
        "median_ns": middle,
        "p999_ns": float(np.quantile(wall, 0.999)),
        "max_ns": int(wall.max()),
        "slow": int(slow.sum()),
        "slow_busy": int((np.array(lane.busy) > SLOW * float(np.median(lane.busy))).sum()),
        "slow_own": int(ours.sum()),
        "own_median_ns": float(np.median(lane.own_wall)),
        "own_p999_ns": float(np.quantile(lane.own_wall, 0.999)),
        "own_max_ns": max(lane.own_wall),
        "own_busy_max_ns": int(own_busy.max()),
        "collections": lane.collections,
        "collecting_ns": lane.collecting_ns,
        "slowest_ns": np.sort(wall)[-20:].tolist(),
        "wall_ns": lane.wall,
    }


def survivors(steps: int = 400) -> dict[str, float]:
    """Return how many objects that the garbage collector walks a step leaves, with and without a session.

    Garbage in cycles counts; a tuple of numbers, which the collector forgets when it first sees it, does not. Samples
    of the stack are off: their tables of lines are bounded, and fill by chance.
    """
    with patch.object(StackProbe, "_update", lambda _probe: None):
        return _survivors(steps)


def _survivors(steps: int) -> dict[str, float]:
    results = {}
    for name, lane in {"bare": _bare(), "session": _profiled(sinks={})}.items():
        # Until all that a run keeps is there: a history of plans, readings of memory, and the statistics of telemetry,
        # which begin with its first reading. Steps are so short that 800 of them may end before it.
        began = monotonic()
        for at in itertools.count():
            if at >= 800 and monotonic() - began > 1.5 * PERIOD_S:
                break
            lane.step(), lane.end()
        lane.flush()
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            for _ in range(steps):
                lane.step(), lane.end()
            lane.flush()
            in_cycles = gc.collect()
            after = len(gc.get_objects())
        finally:
            gc.enable()
            lane.close()
        results[name] = (after - before + in_cycles) / steps
    return results
