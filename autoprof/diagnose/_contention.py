"""Whether other processes hold the processor: then times of this run are no property of the program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..base.units import format_percent
from ._bounds import FULL, MIN_SHARE
from ._evidence import Evidence

QUIET: Final = "a quiet machine: other processes hold its processors"
"""The missing signal of a rule that cannot tell the program from other processes."""


@dataclass(frozen=True, slots=True)
class Contention:
    """Processors in use by this process, its workers and others.

    ``waiting`` is the share of the time in which the training thread waits for one; None where it is not measured.
    """

    waiting: float | None
    own: float
    children: float
    others: float
    machine_cores: int
    busy: float

    @property
    def by_others(self) -> bool:
        """Whether other processes make this one wait."""
        waits = self.busy >= FULL if self.waiting is None else self.waiting >= MIN_SHARE
        return waits and self.others >= MIN_SHARE * self.machine_cores


def contention(run: Evidence) -> Contention | None:
    """Return the use of the processors during the run; None where it is not measured."""
    metrics, machine = run.summary.metrics, run.facts.environment.machine_cores
    if machine is None or "host_cpu_busy" not in metrics or "host_cpu_cores" not in metrics:
        return None
    busy, own = metrics["host_cpu_busy"].mean, metrics["host_cpu_cores"].mean
    children = metrics["host_child_cores"].mean if "host_child_cores" in metrics else 0.0
    waiting = metrics["host_cpu_waiting"].mean if "host_cpu_waiting" in metrics else None
    others = max(busy * machine - own - children, 0.0)
    return Contention(waiting, own, children, others, machine, busy)


def running(run: Evidence) -> float:
    """Return the part of its time that the training thread runs for, and does not wait for a processor."""
    used = contention(run)
    return 1.0 if used is None or used.waiting is None else max(1 - used.waiting, 0.1)


def own_time_ns(run: Evidence) -> float:
    """Return autoprof's own time in a mean step: its processor time, which is counted, and its part of the waits."""
    return run.summary.overhead * run.summary.step_mean_ns / running(run)


def conditions(run: Evidence) -> Iterator[str]:
    """Yield the circumstances that made the times of the run longer, in words."""
    found = contention(run)
    if found is None or not found.by_others:
        return
    waited = "" if found.waiting is None else f", and this one waited {format_percent(found.waiting)} of the time"
    yield (
        f"beside other processes: they kept {found.others:.1f} of {found.machine_cores} processors busy{waited}. Times "
        "are longer, shares and counts hardly change"
    )


def is_crowded(run: Evidence) -> bool:
    """Return whether other processes make this one wait."""
    used = contention(run)
    return used is not None and used.by_others


def changes(run: Evidence) -> bool:
    """Return whether the others make this one wait in a part of the run only: they have come or gone meanwhile."""
    waiting = run.summary.metrics.get("host_cpu_waiting")
    return is_crowded(run) and waiting is not None and waiting.low < MIN_SHARE
