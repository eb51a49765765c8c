"""Frames → running statistics of a run.

A run may change its targets, for example while it opens the hot path. The steps recorded with one set of targets, a
cut, have statistics of their own: in each, parents and children rest on the same steps. A summary shows the cut with
the most steps, and counts the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ..frame import BACKWARD_NAME, NO_GAP, OPTIMIZER_NAME, TRAINING_LANE, FrameRun, Gap, Phase, StepFrame
from ..summary import OTHER_TARGETS, ClockName, Row, Summary
from .cut_statistics import CutStatistics
from .unit_rates import UnitRates

MAX_CUTS: Final = 4
"""Cuts whose statistics are kept; beyond that, those of the fewest steps are dropped."""

UNTIMED_STEPS: Final = "steps without a device time"
"""Reason to exclude a step of a run on a device: host times cannot be added to device times."""


class Aggregate:
    """Add frames to statistics. Not thread-safe: it belongs to the thread that calls ``Session.step``."""

    def __init__(self) -> None:
        self.warmup_steps = 0
        self.unsampled_steps = self._unsampled_ns = 0
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._clock: ClockName = "host"
        self._overhead_ns = 0
        self._observed_ns = 0
        self._scalars: dict[str, float] = {}
        self._memory: dict[str, int] = {}
        self._units = UnitRates()
        self._run_steps = self._run_ns = 0
        self._settling = False
        self._cuts: dict[int, CutStatistics] = {}
        self._other_steps = 0
        """Steps of cuts whose statistics were dropped."""

    @property
    def steps(self) -> int:
        """The recorded steps, warm-up excluded."""
        return self._other_steps + sum(cut.steps for cut in self._cuts.values())

    def add(self, frame: StepFrame) -> None:
        """Add one frame."""
        self.add_run(FrameRun.of(frame))

    def add_run(self, run: FrameRun) -> None:
        """Add the frames of a run, all at once; warm-up is only counted."""
        if run.dropped and not run.warmup:  # no statistics lack the marks of a warm-up step
            self.dropped["marks"] += run.dropped
        for memory in filter(None, run.memory):
            self._memory.update(memory)
        for scalars in filter(None, run.scalars):
            self._scalars.update(scalars)
        count, elapsed_ns = len(run.steps), sum(run.step_ns)
        self._overhead_ns += run.overhead_ns
        self._observed_ns += elapsed_ns
        self._units.add_run(run, run.scalars, run.gap_scalars)
        for gap in run.gaps:
            if any(gap):
                self._add_gap(gap)
        self._settling = run.gaps[-1].steps > 0 or (self._settling and run.warmup)
        if self._settling or not run.warmup:  # the settling steps after a gap count
            self._run_steps += count
            self._run_ns += elapsed_ns
        cut = self._cuts.get(run.cut) or self._open_cut(run.cut)
        if run.warmup:
            self.warmup_steps += count
            cut.add_memory(run)  # an allocator's running peak grows most in the first steps, and shows only there
        elif run.untimed:
            self.skipped[UNTIMED_STEPS] += count
        else:
            if run.host_bound_ns is not None:
                self._clock = "device"
            cut.add_run(run)

    def _add_gap(self, gap: Gap) -> None:
        """Add the gap before a recorded step, whose overhead counts autoprof's own work already."""
        elapsed_ns = gap.ns + gap.overhead_ns
        self.unsampled_steps += gap.steps
        self._unsampled_ns += gap.ns
        self._observed_ns += elapsed_ns
        self._run_steps += gap.steps
        self._run_ns += elapsed_ns

    def _open_cut(self, number: int) -> CutStatistics:
        if len(self._cuts) >= MAX_CUTS:
            fewest = min(self._cuts, key=lambda one: self._cuts[one].steps)
            dropped = self._cuts.pop(fewest)
            self._other_steps += dropped.steps
            self.dropped.update(dropped.dropped)
        cut = self._cuts[number] = CutStatistics()
        return cut

    def _shown(self) -> CutStatistics:
        """Return the cut with the most steps, of several the latest."""
        cuts = self._cuts or {0: CutStatistics()}
        return max(reversed(cuts.values()), key=lambda cut: cut.steps)

    def add_memory(self, readings: Mapping[str, int]) -> None:
        """Add the latest readings of memory, of no recorded step."""
        self._memory.update(readings)

    def summary(
        self, *, notes: tuple[str, ...] = (), skipped: Mapping[str, int] | None = None, gap: Gap = NO_GAP
    ) -> Summary:
        """Return the statistics so far, rows in descending order of total time.

        ``gap`` has the steps since the last recorded one, which are counted too. On a device no event shows their time:
        there they take the mean of the other unsampled ones, or of the recorded ones where there is no other.
        """
        cut = self._shown()
        cut.flush()
        table, steps, step_ns = cut.table, cut.steps, int(cut.table.total[0])
        p50, p95 = table.quantiles_ns(0.5, 0.95)
        phases = {phase: cut.phases[phase] for phase in Phase if phase in cut.phases}
        phases[Phase.OTHER] = step_ns - sum(phases.values())
        rows = tuple(cut.rows(p50, p95, on_device=self._clock == "device"))
        other_steps = self.steps - steps
        if self._clock == "device" and steps:
            known = (self._unsampled_ns, self.unsampled_steps) if self.unsampled_steps else (step_ns, steps)
            gap = gap._replace(ns=gap.steps * known[0] // known[1])
        gap_ns = gap.ns + gap.overhead_ns
        overhead_ns, observed_ns = self._overhead_ns + gap.overhead_ns, self._observed_ns + gap_ns
        dropped = sum((one.dropped for one in self._cuts.values()), self.dropped)
        unit, throughput = self._units.latest()
        return Summary(
            clock=self._clock,
            steps=steps,
            warmup_steps=self.warmup_steps,
            unsampled_steps=self.unsampled_steps + gap.steps,
            unsampled_ns=self._unsampled_ns + gap.ns,
            run_steps=self._run_steps + gap.steps,
            run_ns=self._run_ns + gap_ns,
            total_step_ns=step_ns,
            step_mean_ns=step_ns // steps if steps else 0,
            step_min_ns=int(table.min[0]) if steps else 0,
            step_max_ns=int(table.max[0]),
            step_p50_ns=int(p50[0]) if steps else 0,
            step_p95_ns=int(p95[0]) if steps else 0,
            phases=phases,
            rows=rows,
            overhead=overhead_ns / observed_ns if observed_ns else 0.0,
            throughput=throughput,
            throughput_unit=unit,
            scalars=dict(self._scalars),
            memory=dict(self._memory),
            micro_steps=_micro_steps(rows),
            dropped=dict(dropped),
            skipped={**self.skipped, **({OTHER_TARGETS: other_steps} if other_steps else {}), **(skipped or {})},
            notes=notes,
        )


def _micro_steps(rows: Sequence[Row]) -> int | None:
    """Return the pairs of forward and backward before one optimizer step in the mean; None without a backward pass.

    Several backward passes of one forward are one pair.
    """
    in_steps = [row for row in rows if row.lane == TRAINING_LANE]
    passes = sum(row.calls for row in in_steps if row.name == BACKWARD_NAME)
    updates = sum(row.calls for row in in_steps if row.name == OPTIMIZER_NAME)
    forwards = next((row.calls for row in in_steps if row.phase is Phase.FORWARD and row.parent is None), passes)
    return max(round(min(passes, forwards) / max(updates, in_steps[0].steps)), 1) if passes else None
