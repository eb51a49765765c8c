"""Rule ``threads``: more threads compute than there are processors, so they wait for one another."""

from __future__ import annotations

from typing import Final

from ..._units import format_percent
from ...summary import Finding
from .._contention import MIN_WAITING, contention
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Rule

MIN_CHILD_CORES: Final = 0.3
"""Processors that the loader's workers use before they count."""


def judge(run: Evidence) -> Finding | None:
    """Judge the threads of all ranks, and the loader's workers if the training thread waits for a processor."""
    environment, used = run.facts.environment, contention(run)
    threads, cores, ranks = environment.threads, environment.cores, environment.local_ranks or 1
    if not threads or not cores or environment.device not in ("", "cpu"):
        return None
    waiting = None if used is None else used.waiting
    each = max(cores // ranks, 1)
    workers = run.summary.loader.get("workers", 0)
    waits = waiting is not None and waiting >= MIN_WAITING and used is not None and not used.by_others
    crowded = waits and used is not None and used.children >= MIN_CHILD_CORES and threads * ranks + workers > cores
    if threads <= each and not crowded:
        return None
    several = f" in each of {ranks} ranks" if ranks > 1 else ""
    busy = f" beside {workers} loader workers" if crowded else ""
    waited = f"; the training thread waited {format_percent(waiting)} of the time for one" if waits and waiting else ""
    left = max(cores - workers, 1) // ranks if crowded else each
    return Finding(
        "threads",
        "warning",
        f"torch computes with {threads} threads{several}{busy} on {cores} "
        f"{'processor' if cores == 1 else 'processors'}: threads that have no processor hold up the others{waited}",
        f"torch.set_num_threads({max(left, 1)}), or OMP_NUM_THREADS={max(left, 1)} in the environment"
        + ("; or fewer num_workers" if crowded else ""),
        gain_ns=round(waiting * run.summary.step_mean_ns) if waits and waiting else None,
        evidence={
            "threads": threads,
            "cores": cores,
            "ranks": ranks,
            "workers": workers,
            "waiting": waiting,
            "advised": max(left, 1),
        },
    )


def _experiment(finding: Finding) -> Experiment:
    return Experiment("threads", value=finding.evidence.get("advised"))  # older runs saved it in the text only


RULE = Rule(
    "threads",
    judge,
    order=137,
    experiment=_experiment,
)
