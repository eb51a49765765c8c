"""Rule ``python-thread``: another thread runs Python, and the training thread waits for the interpreter.

Finds, above a bound:

- a thread that computes in Python, or polls, while the training thread neither computes nor waits for data, another
  rank or a processor. The line that it runs is named: 30 % of a processor, and 10 % of the step.
"""

from __future__ import annotations

from typing import Final

from ...base.frame import Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding
from ...base.units import format_percent
from .. import Evidence, ExceededBound, Experiment, Rule, threshold_time
from .._bounds import LARGE_SHARE
from .._contention import contention, running

OUTSIDE: Final = (Phase.DATA, Phase.H2D, Phase.COMM, Phase.USER, Phase.OTHER)
"""Phases in which the training thread may wait for something else than the interpreter."""


def judge(run: Evidence) -> Finding | None:
    """Judge the time in which the training thread waits for nothing else, beside a thread that computes."""
    # One that waits for processors as the training thread does gets as much of one; threads of torch wait for others.
    part = running(run) if (run.facts.environment.threads or 1) == 1 else 1.0
    threads = [thread for thread in run.facts.threads if thread.cores >= LARGE_SHARE * part]
    used, cores = contention(run), run.facts.training_cores
    if not threads or used is None or cores is None or run.summary.clock == "device":
        return None  # a thread that waits for a device does not compute either
    computing = cores + (used.waiting or 0.0)
    phases, whole = run.summary.phases, max(run.summary.total_step_ns, 1)
    waits = sum(phases.get(phase, 0) for phase in OUTSIDE) / whole
    lost_ns = (1 - computing - waits) * run.summary.step_mean_ns
    found = threshold_time("python-thread", run, Interval.exact(max(lost_ns, 0.0)), max(lost_ns, 0.0))
    if not isinstance(found, ExceededBound):
        return found
    thread = threads[0]
    return found.finding(
        f"thread {thread.described} takes {format_percent(thread.cores)} of a processor: while it runs Python it holds "
        f"the interpreter (GIL), and the training thread waits {found}",
        "wait there by an event, a lock or queue.get() in place of polling; or do its work in another process",
        name=thread.name,
        evidence=thread.evidence(),
    )


RULE = Rule("python-thread", judge, order=48, experiment=Experiment("other", "edit"))
