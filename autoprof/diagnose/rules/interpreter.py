"""Rule ``interpreter``: another Python thread of the program holds the GIL, so the training thread waits for it."""

from __future__ import annotations

import sys
from typing import Final

from ..._stats.intervals import Interval
from ...frame import Phase
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._experiment import Experiment, longest_call
from .._rule import Rule
from .._thresholding import ExceededBound, abstain, threshold_time

MAX_SHARE: Final = 0.15
"""Share of the step in which the training thread is blocked inside modules or the optimizer. Without a device to wait
for, it was 0.0 % alone, beside threads that sleep and beside threads that compute in torch, on a busy machine, too."""
MIN_PART: Final = 0.5
"""The least CPU time of such threads, in parts of that wait: a thread that keeps the GIL computes meanwhile."""
MIN_LOOKS: Final = 5
WAITING: Final = (Phase.DATA, Phase.COMM)
"""Phases in which the training thread may wait for something else; so it may in no span."""


def judge(run: Evidence) -> Finding | None:
    """Judge the time in which the training thread is blocked beside threads that hold the GIL, though it has work."""
    threads, metrics = run.facts.threads, run.summary.metrics
    if threads is None or run.summary.clock != "host" or not run.summary.steps:
        return None
    holding = threads.holding
    if threads.looks < MIN_LOOKS or not holding:
        return None
    if "host_cpu_blocked" not in metrics:
        return abstain("interpreter", "how long the training thread was blocked", "set monitor: auto, on Linux")
    used = sum(threads.cores(thread) for thread in holding)
    waiting = metrics["host_cpu_waiting"].mean if "host_cpu_waiting" in metrics else 0.0
    blocked = metrics["host_cpu_blocked"].mean
    if used < MIN_PART * blocked:
        return None
    # Without the wait for a processor, and as if all that may be another wait was one.
    least = blocked / max(1 - waiting, blocked, 1e-9) - _other_waits(run.summary)
    step = Interval.exact(run.summary.step_mean_ns)
    wait = Interval.exact(max(least, 0.0) * run.summary.step_mean_ns)
    found = threshold_time("interpreter", run, wait, wait.middle, MAX_SHARE, step=step)
    if not isinstance(found, ExceededBound):
        return found
    first, others = holding[0], len(holding) - 1
    named = f" ({first.lines.describe(threads.cores(first))} of a processor)" if first.lines.named else ""
    return found.finding(
        f"thread {first.name}{f' and {others} more' if others else ''} {'run' if others else 'runs'} Python{named} and "
        f"{'hold' if others else 'holds'} the interpreter (GIL) meanwhile: the training thread is blocked for {found}, "
        f"up to {sys.getswitchinterval() * 1e3:.0f} ms at each operation",
        "let another process do this work (num_workers, multiprocessing), or operations of numpy or torch on whole "
        "arrays, which release the GIL; sys.setswitchinterval(0.0005) shortens each wait",
        name=first.lines.dominant or first.name,
        evidence={
            "threads": [{"name": one.name, "cores": round(threads.cores(one), 2)} for one in holding],
            "blocked": round(blocked, 4),
            "waiting": round(waiting, 4),
            **first.lines.evidence(),
        },
    )


def _other_waits(summary: Summary) -> float:
    """Return the share of the time in which the training thread may wait for something that is no GIL."""
    phases = [summary.phases.get(phase, 0) for phase in (*WAITING, Phase.OTHER)]
    return sum(phases) / max(summary.total_step_ns, 1) + summary.excluded_share


def _experiment(finding: Finding) -> Experiment:
    return Experiment("thread.code", "edit", target=longest_call(finding))


RULE = Rule(
    "interpreter",
    judge,
    order=139,
    host_times=False,  # the wait for a processor is no part of it
    experiment=_experiment,
    needs_steps=False,  # steps are few where each is long for this reason
)
