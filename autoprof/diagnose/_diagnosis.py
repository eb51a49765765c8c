"""The diagnosis of a live run: collect evidence step by step, and judge it when a summary is made."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter_ns
from typing import Any, Final

from ..base.allowance import Allowance
from ..base.failures import contain, ignore
from ..base.frame import FrameRun
from ..base.process.gc_paused import collects_garbage
from ..base.summary import Summary
from ..base.units import NS_PER_S
from ..capture.hooks.results import StepResults
from ..capture.hooks.sizes import ModuleSize, next_node
from ..capture.memory import Footprint
from ..devices import heap_bytes
from ..probes import KeptTensorsProbe, TimedCall
from ..probes.cleared_gradients import ClearedGradients
from ..probes.compilations import CompilationProbe
from ..probes.debug_modes import FIRST_LOOKS, LOOK_EVERY, DebugProbe
from ..probes.log_calls import LogProbe
from ..probes.sync_calls import SyncProbe
from ..ranks import RankMonitor
from ..resolve import RawStep
from ..resolve.observer import Observer
from ._calls import idle_after_waits_ns, summarize_calls, summarize_compilations
from ._evidence import MEMORY_KINDS, EvidenceCollector, enough_growth
from ._facts import RunFacts
from ._judge import diagnose, find_rules
from ._optimizers import OptimizerInfo, describe_optimizer
from ._python_threads import ThreadMonitor
from ._rule import MIN_STEPS
from ._stacks import StackMonitor

READ_EVERY_NS: Final = NS_PER_S // 4
"""The least time between two readings of the memory in use, of 0.1 ms each, and between two looks at the variables: a
few of them show which one grows, also in a run of a second."""


class CallMonitor:
    """Collect the calls and compilations that the probes saw, step by step, on the training thread."""

    def __init__(self, syncs: SyncProbe, logs: LogProbe, compilations: CompilationProbe, debug: DebugProbe) -> None:
        self._syncs = syncs
        self._logs = logs
        self._debug = debug
        self._compilations = compilations
        self._waiting: dict[int, tuple[int, int, list[TimedCall]]] = {}
        """The number, the begin and the calls of steps on a device whose frames have not arrived."""
        self._steps = self._run_ns = 0
        """The recorded steps, and their time."""
        self._closed = 0
        """The recorded steps, those of the warm-up included."""

    def step(self, raw: RawStep, step_ns: int) -> None:
        """Take the calls of a closed step from the probes; those of a warm-up step are dropped."""
        counts, logs, waits = not raw.warmup, self._logs.table, self._syncs.table
        if counts:
            self._steps += 1
            self._run_ns += step_ns
        if self._compilations.open_count:
            self._compilations.close_step(counts)
        if self._debug.looks:
            self._debug.close_step(counts)
        self._closed += 1
        looks = self._closed < FIRST_LOOKS or self._closed % LOOK_EVERY == 0
        if looks is not self._debug.looks:
            self._debug.look_at_next(looks)
        if not counts:
            logs.drop()
            waits.drop()
            return
        if logs.open or logs.pending:
            logs.close_step(self._steps, logs.count(logs.take()))
        if self._syncs.applies and (waits.open or waits.pending):
            # Steps whose calls are kept until their frames arrive; a device is a few steps behind.
            if len(self._waiting) >= 256:
                del self._waiting[next(iter(self._waiting))]
            self._waiting[raw.step] = self._steps, raw.begun_ns, waits.take()

    def frames(self, run: FrameRun) -> None:
        """Add the cost of the waits in these steps: their frames show when the device had work again."""
        for frame in run.frames if self._waiting else ():
            number, begun_ns, calls = self._waiting.pop(frame.step, (0, 0, []))
            idle = idle_after_waits_ns(frame, begun_ns, calls) if calls and not frame.warmup else None
            if idle is not None:
                spent = self._syncs.table.count(calls)
                self._syncs.table.close_step(number, spent, min(spent, idle))

    def facts(self) -> dict[str, Any]:
        """Return the fields of ``RunFacts`` that are measured here."""
        completed = self._steps - len(self._waiting)
        return {
            "waits": summarize_calls(self._syncs.table, completed, 1) if self._syncs.applies else None,
            "logs": summarize_calls(self._logs.table, self._steps),
            "debug": {name: count / self._debug.steps for name, count in self._debug.counts.items()},
            "compiled": summarize_compilations(self._compilations, self._steps, self._run_ns),
        }


class CollectionTracker:
    """Remember the steps with a full collection of garbage, from the collector's own counters.

    ``gc.callbacks`` would also give the duration. It is not used: an exception in a callback is printed and lost, and a
    Ctrl-C during a long collection is raised in the first Python code after it, which would be the callback.
    """

    def __init__(self) -> None:
        self.steps: deque[int] = deque(maxlen=1024)
        self.count = 0
        self._last_step = 0
        self._collections = -1

    def step(self, step: int, step_ns: int) -> None:
        """Record whether a collection ran in a closed step; after unsampled steps the count is only refreshed."""
        # A full collection visits about 150,000 objects that importing torch creates, so a shorter step had none and
        # the counters are not read. With cold caches reading them takes 6 µs, as long as all metrics at the end of a
        # step.
        if step_ns < 2_000_000 and step == self._last_step + 1:
            self._last_step = step
            return
        collections = gc.get_stats()[2]["collections"]
        if collections != self._collections:
            if step == self._last_step + 1 and self._collections >= 0:
                self.steps.append(step)
                self.count += 1
            self._collections = collections
        self._last_step = step


class NodeTracker:
    """Count the nodes of autograd that steps make, from the thread's own counter."""

    def __init__(self) -> None:
        self._next = self._made = self._steps = 0
        self._last_step = -1

    def step(self, step: int) -> None:
        """Read the counter where a step closes."""
        following = next_node()
        if step == self._last_step + 1:
            self._made += following - self._next
            self._steps += 1
        self._last_step, self._next = step, following

    @property
    def mean(self) -> float | None:
        """The nodes of a mean step; None where no two steps in a row were recorded."""
        return self._made / self._steps if self._steps else None


class Diagnosis(Observer):
    """Observe a live run for the rules. They judge only when a summary is annotated.

    ``facts`` are those known at the start; ``footprint`` knows the optimizers, and ``variables`` pays for looks at the
    variables. The rules are found when it is built: importing them takes milliseconds, which no step must take.
    """

    provides = "verdict"

    def __init__(
        self,
        facts: RunFacts,
        footprint: Footprint,
        calls: CallMonitor,
        ranks: RankMonitor,
        stacks: StackMonitor,
        threads: ThreadMonitor,
        sizes: Mapping[str, ModuleSize],
        results: StepResults,
        gradients: ClearedGradients,
        explained: Callable[[], Mapping[int, float]],
        variables: Allowance,
    ) -> None:
        find_rules()
        self._start_facts = facts
        self._footprint = footprint
        self._optimizer_infos: tuple[OptimizerInfo, ...] | None = None
        self._collector = EvidenceCollector()
        self._collections = CollectionTracker()
        self._nodes = NodeTracker()
        self._calls = calls
        self._ranks = ranks
        self._stacks = stacks
        self._threads = threads
        self._sizes = sizes
        self._results = results
        self._gradients = gradients
        self._explained = explained
        self._variables = variables
        self._kept = KeptTensorsProbe()
        self._first_memory: dict[str, int] = {}
        """The first reading of each kind."""
        self._grown_step: int | None = None
        """The last step, where memory was well above the first reading."""
        self._first_heap: int | None = None
        self._heap_growth: int | None = None
        self._next_heap_ns = 0
        self._next_look_ns = 0
        """The time from which on the variables are looked at again, if memory grows. A look keeps the
        locals of a running function alive until the next one (CPython before 3.13), so none is made without need."""
        self._final: RunFacts | None = None
        """The facts at the end of the run."""

    def step(self, raw: RawStep) -> RawStep:
        """Take the calls and the samples of a closed step."""
        step_ns = raw.ended_ns - raw.begun_ns
        self._collections.step(raw.step, step_ns)
        if raw.step <= FIRST_LOOKS or raw.step % LOOK_EVERY < 2:
            self._nodes.step(raw.step)
        if not self._results.is_closed:
            self._results.close_step()
        self._calls.step(raw, step_ns)
        if self._stacks.later or self._stacks.probe.samples:
            self._stacks.step(raw)
        if raw.memory and not raw.warmup:
            self._grown_step = raw.step if self._memory_grows(raw.memory) else None
            if self._grown_step is not None:
                self._look(raw.step)
        return raw

    def _memory_grows(self, memory: Mapping[str, int]) -> bool:
        """Return whether a reading is well above the first one: frames, which have it too, may come much later."""
        kind = next((kind for kind in MEMORY_KINDS if kind in memory), None)
        if kind is None:
            return False
        if kind not in self._first_memory:
            self._first_memory[kind], self._first_heap = memory[kind], heap_bytes()
        first = self._first_memory[kind]
        return memory[kind] - first > enough_growth(first)

    def _look(self, step: int) -> None:
        """Look at the variables, and at the memory in use, between two steps if the last look was long ago."""
        if perf_counter_ns() >= self._next_heap_ns:
            with self._variables.work():
                self._read_heap()
            self._next_heap_ns = perf_counter_ns() + READ_EVERY_NS
        if perf_counter_ns() >= self._next_look_ns:
            with self._variables.work():
                self._kept.look(sys._getframe(), step)
            self._next_look_ns = perf_counter_ns() + max(self._variables.pause_ns(), READ_EVERY_NS)

    def _read_heap(self) -> None:
        now = heap_bytes()
        if now is not None and self._first_heap is not None:
            self._heap_growth = now - self._first_heap

    def frames(self, run: FrameRun) -> None:
        """Add the frames of steps, and look at the other threads."""
        self._collector.add_run(run)
        self._calls.frames(run)
        self._stacks.frames(run)
        self._threads.look()
        self._results.compare()

    def finish(self, *, complete: bool) -> dict[str, Any]:
        """Compare the ranks over all their records, however long that takes.

        Return the facts, from which the saved run is diagnosed again.
        """
        if self._grown_step is not None:  # the program may have dropped meanwhile what had grown: no new reading
            self._kept.look(sys._getframe(), self._grown_step)
        if complete:
            with contain(ignore):
                self._results.compare(final=True)
        self._final = self._measured(final=True, waits=complete)
        return {"facts": self._final.to_dict()}

    def facts(self) -> RunFacts:
        """Return the facts known so far."""
        return self._measured() if self._final is None else self._final

    def _measured(self, *, final: bool = False, waits: bool = False) -> RunFacts:
        """Return the facts; optimizers are described once, when all that have state have created it."""
        optimizers = self._footprint.optimizers()
        if optimizers and self._optimizer_infos is None:
            has_steps = self._collector.steps >= MIN_STEPS  # an optimizer without state keeps none
            if has_steps or all(one.state for one in optimizers):
                self._optimizer_infos = tuple(map(describe_optimizer, optimizers))
        untrained = self._footprint.untrained(final=final)  # an optimizer that has not stepped yet may train them later
        longest = tuple(long.step for long in self._collector.longest())
        collected = set(self._collections.steps)
        return replace(
            self._start_facts,
            optimizers=self._optimizer_infos,
            collected=tuple(sorted(step for step in longest if step in collected)),
            collections=self._collections.count,
            collects=collects_garbage(),
            nodes=self._nodes.mean,
            ranks=self._ranks.comparison(final=final, waits=waits),
            stacks=self._stacks.statistics(),
            threads=self._threads.busy(),
            training_cores=self._threads.training_cores(),
            kept=self._kept.growing(),
            heap_growth_bytes=self._heap_growth,
            trains_copy=self._footprint.trains_copy,
            untrained=untrained if final else (),
            sizes=dict(self._sizes),
            repeated=dict(self._results.repeated),
            cleared=self._gradients.shares(),
            explained=self._explained(),
            **self._calls.facts(),
        )

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with its findings and its what-if table."""
        return diagnose(self._collector.evidence(summary, self.facts()))
