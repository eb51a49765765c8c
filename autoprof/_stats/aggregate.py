"""Frames → running statistics of a run.

A run may change its targets, for example while it opens the hot path. The steps recorded with one set of targets, a
cut, have statistics of their own: in each, parents and children rest on the same steps. A summary shows the cut with
the most steps, and counts the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ..frame import NO_GAP, FrameRun, Gap, Phase, StepFrame
from ..summary import OTHER_TARGETS, ClockName, Summary
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
        """Add one frame; a warm-up frame is only counted."""
        if frame.dropped and not frame.warmup:  # no statistics lack the marks of a warm-up step
            self.dropped["marks"] += frame.dropped
        if frame.memory:
            self._memory.update(frame.memory)
        if frame.scalars:
            self._scalars.update(frame.scalars)
        self._overhead_ns += frame.overhead_ns
        self._observed_ns += frame.duration_ns
        self._units.add(frame, frame.scalars, frame.gap_scalars)
        self._add_to_run(frame)
        cut = self._cuts.get(frame.cut) or self._open_cut(frame.cut)
        if frame.warmup:
            self.warmup_steps += 1
            cut.add_memory(frame)  # an allocator's running peak grows most in the first steps, and shows only there
            return
        if frame.device_ns is not None and frame.device_duration_ns is None:
            self.skipped[UNTIMED_STEPS] += 1
            return
        if frame.device_ns is not None:
            self._clock = "device"
        cut.add(frame)

    def add_run(self, run: FrameRun) -> None:
        """Add the frames of a run, all at once where they are plain ones."""
        if not run.plain:
            for frame in run.frames:
                self.add(frame)
            return
        for memory in filter(None, run.memory):
            self._memory.update(memory)
        for scalars in filter(None, run.scalars):
            self._scalars.update(scalars)
        elapsed_ns = sum(run.duration_ns)
        self._overhead_ns += run.overhead_ns
        self._observed_ns += elapsed_ns
        self._units.add_run(run, run.scalars, run.gap_scalars)
        for gap in run.gaps:
            self._add_gap_before(gap)
        self._settling = run.gaps[-1].steps > 0
        self._run_steps += len(run.steps)
        self._run_ns += elapsed_ns
        if run.host_bound_ns is not None:
            self._clock = "device"
        cut = self._cuts.get(run.cut) or self._open_cut(run.cut)
        cut.add_run(run)

    def _add_to_run(self, frame: StepFrame) -> None:
        """Add the step, and the gap before it, to the time of all steps; the settling steps after a gap count."""
        if frame.gap_steps:
            self._settling = True
            self._add_gap_before(Gap(frame.gap_steps, frame.gap_ns, frame.gap_overhead_ns))
        elif not frame.warmup:
            self._settling = False
        if self._settling or not frame.warmup:
            self._run_steps += 1
            self._run_ns += frame.duration_ns

    def _add_gap_before(self, gap: Gap) -> None:
        """Add the gap before a recorded step, whose overhead counts autoprof's own work already."""
        if gap.steps:
            self.add_gap(gap.steps, gap.ns)
            self._observed_ns += gap.overhead_ns
            self._run_ns += gap.overhead_ns

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

    def add_gap(self, steps: int, elapsed_ns: int) -> None:
        """Add unsampled steps; there are none where the run ends as a gap begins."""
        if not steps:
            return
        self.unsampled_steps += steps
        self._unsampled_ns += elapsed_ns
        self._observed_ns += elapsed_ns
        self._run_steps += steps
        self._run_ns += elapsed_ns

    def summary(
        self, *, notes: tuple[str, ...] = (), skipped: Mapping[str, int] | None = None, gap: Gap = NO_GAP
    ) -> Summary:
        """Return the statistics so far, rows in descending order of total time.

        ``gap`` has the steps since the last recorded one, which are counted too.
        """
        cut = self._shown()
        cut.flush()
        table, steps, step_ns = cut.table, cut.steps, int(cut.table.total[0])
        p50, p95 = table.quantiles_ns(0.5, 0.95)
        phases = {phase: cut.phases[phase] for phase in Phase if phase in cut.phases}
        phases[Phase.OTHER] = step_ns - sum(phases.values())
        micro_steps = cut.micro_steps
        other_steps = self.steps - steps
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
            rows=tuple(cut.rows(p50, p95, on_device=self._clock == "device")),
            overhead=overhead_ns / observed_ns if observed_ns else 0.0,
            throughput=throughput,
            throughput_unit=unit,
            scalars=dict(self._scalars),
            memory=dict(self._memory),
            micro_steps=max(micro_steps, key=lambda count: (micro_steps[count], count), default=None),
            dropped=dict(dropped),
            skipped={**self.skipped, **({OTHER_TARGETS: other_steps} if other_steps else {}), **(skipped or {})},
            notes=notes,
        )
