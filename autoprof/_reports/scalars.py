"""A stretch of steps as numbers with names, for trackers and monitors, which want few points, not every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

import numpy as np

from .._stats.rows import step_rows
from .._units import NS_PER_MS, NS_PER_S
from ..frame import UNTIMED_LANE, Layout, Nanoseconds, Phase, StepFrame

LAYOUTS: Final = 32
"""Layouts whose sums are kept apart within one stretch."""

RowTimes = Mapping[tuple[str, Phase], int]


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a stretch of recorded steps comes to: means over its steps, and the last value of what was logged.

    ``rows`` and ``phases`` are nanoseconds over the stretch; a row counts a span nested in its own row once.
    ``throughput`` and ``overhead`` are by the host's clock. ``recorded`` and ``dropped`` count from the run's start.
    """

    step: int
    time_unix_ns: int
    steps: int
    step_ns: int
    overhead: float
    phases: Mapping[Phase, int]
    rows: RowTimes
    throughput: float | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    recorded: int = 0
    dropped: int = 0

    def top(self, count: int) -> list[tuple[str, Phase, float]]:
        """Return the longest rows: name, phase and seconds a step."""
        longest = sorted(self.rows.items(), key=lambda item: (-item[1], item[0][0], str(item[0][1])))[:count]
        return [(name, phase, ns / self.steps / NS_PER_S) for (name, phase), ns in longest]

    def named(self, top: int, prefix: str = "autoprof") -> dict[str, float]:
        """Return all numbers by name, times in milliseconds a step; what is not finite stays as it is."""
        mean_ms = {
            "step_ms": self.step_ns / self.steps / NS_PER_MS,
            **{f"phase_ms/{phase}": ns / self.steps / NS_PER_MS for phase, ns in self.phases.items()},
            **{f"ms/{name}/{phase}": seconds * 1000 for name, phase, seconds in self.top(top)},
        }
        rest: dict[str, float] = {} if self.throughput is None else {"throughput": self.throughput}
        rest["overhead"] = self.overhead
        rest |= {f"memory/{name}": float(value) for name, value in self.memory.items()}
        rest |= {f"scalar/{name}": float(value) for name, value in self.scalars.items()}
        return {f"{prefix}/{name}" if prefix else name: value for name, value in {**mean_ms, **rest}.items()}


class Stretch:
    """Add frames up until they are asked for. Adding one is a few array operations, whatever its number of spans."""

    def __init__(self) -> None:
        self._recorded = self._dropped = 0
        self._begin()

    def _begin(self) -> None:
        self._sums: dict[Layout, Nanoseconds] = {}
        self._rows: dict[tuple[str, Phase], int] = {}
        self._phases: dict[Phase, int] = {}
        self._scalars: dict[str, float] = {}
        self._memory: dict[str, int] = {}
        self._steps = self._step_ns = self._observed_ns = self._overhead_ns = 0
        self._samples, self._sampled_ns = 0.0, 0
        self._last = 0, 0

    def __len__(self) -> int:
        return self._steps

    def add(self, frame: StepFrame) -> None:
        """Take one step. One whose device time is not known is left out, as it is from the statistics."""
        if frame.scalars:
            self._scalars.update(frame.scalars)
        if frame.memory:
            self._memory.update(frame.memory)
        if frame.device_ns is not None and frame.device_duration_ns is None:
            return
        total, sums = frame.total_ns, self._sums
        known = sums.get(frame.layout)
        if known is None:
            if len(sums) >= LAYOUTS:
                self._fold()
            sums[frame.layout] = total.astype(np.int64, copy=True)
        else:
            known += total
        self._steps += 1
        self._recorded += 1
        self._dropped += frame.dropped
        self._step_ns += frame.step_ns
        self._observed_ns += frame.duration_ns
        self._overhead_ns += frame.overhead_ns
        self._last = frame.step, frame.start_unix_ns
        samples = frame.scalars.get("samples")
        if samples is not None and isfinite(samples):
            self._samples += samples
            self._sampled_ns += frame.duration_ns

    def _fold(self) -> None:
        for layout, sums in self._sums.items():
            rows = step_rows(layout)
            for key, ns in zip(rows.keys, rows.totals(sums).tolist(), strict=True):
                if key.lane == UNTIMED_LANE:  # it has no device time, which is not a time of none
                    continue
                self._rows[key.name, key.phase] = self._rows.get((key.name, key.phase), 0) + ns
            own = layout.self_ns(sums)
            for phase, spans in layout.phase_groups:
                self._phases[phase] = self._phases.get(phase, 0) + int(own[spans].sum())
        self._sums.clear()

    def take(self) -> Metrics | None:
        """Return what the stretch comes to and begin the next; None where there was no step."""
        if not self._steps:
            return None
        self._fold()
        step, time_unix_ns = self._last
        phases = {**self._phases, Phase.OTHER: self._step_ns - sum(self._phases.values())}
        metrics = Metrics(
            step=step,
            time_unix_ns=time_unix_ns,
            steps=self._steps,
            step_ns=self._step_ns,
            overhead=self._overhead_ns / self._observed_ns if self._observed_ns else 0.0,
            phases=phases,
            rows=self._rows,
            throughput=self._samples * NS_PER_S / self._sampled_ns if self._sampled_ns else None,
            scalars=self._scalars,
            memory=self._memory,
            recorded=self._recorded,
            dropped=self._dropped,
        )
        self._begin()
        return metrics
