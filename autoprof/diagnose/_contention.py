"""Whether other processes hold the processor: then times of this run are no property of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ._evidence import Evidence

MIN_WAITING: Final = 0.1
"""Share of the time in which the training thread waits for a processor, from which times are not the program's own."""
MIN_OTHERS: Final = 0.3
"""Processors that others keep busy before the wait is called theirs."""
FULL: Final = 0.95
"""Busy share of the machine that counts as full where the wait of the thread is not measured."""

FIRM: Final = 2.0
"""Times its bound at which a share of the step stands on a busy machine, too: processes that come and go make a phase
longer by a part of it, not by the whole of it."""

CLEAR: Final = 1.3
"""Times its bound at which a share stands if all computing waits alike: it does so over many steps only."""

QUIET: Final = "a quiet machine: other processes hold its processors"
"""The missing signal of a rule that cannot tell the program from other processes."""


@dataclass(frozen=True, slots=True)
class Contention:
    """Processors in use by this process, its workers and others, and the training thread's waits as shares of the time.

    ``waiting`` is that for a processor, ``blocked`` for anything else; each is None where it is not measured.
    """

    waiting: float | None
    own: float
    children: float
    others: float
    machine_cores: int
    busy: float
    blocked: float | None = None

    @property
    def by_others(self) -> bool:
        """Whether other processes make this one wait."""
        least = max(MIN_OTHERS, 0.1 * self.machine_cores)
        waits = self.busy >= FULL if self.waiting is None else self.waiting >= MIN_WAITING
        return waits and self.others >= least

    def explains(self, evidence: Mapping[str, Any]) -> bool:
        """Return whether a share of the step may be above its bound only because of the wait for a processor.

        The share without that wait is least if all of the wait was in the phase that is judged. Over many steps, only
        computing waits for a processor, and all of it alike; time that is certainly blocked does not.
        """
        share, bound = evidence.get("share_low"), evidence.get("bound")
        if share is None or bound is None or share >= FIRM * bound:
            return False
        if self.waiting is None or share - self.waiting >= bound * (1 - self.waiting):
            return self.waiting is None
        if self.blocked is None:
            return True
        running = max(1 - self.waiting - self.blocked, 0.0)
        computed = running / max(running + self.waiting, 1e-9)
        still = evidence.get("blocked", 0.0)
        least = share * (still + (1 - still) * computed) / max(1 - self.waiting, 1e-9)
        return bool(least < CLEAR * bound)


def contention(run: Evidence) -> Contention | None:
    """Return the use of the processors during the run; None where it is not measured."""
    metrics, machine = run.summary.metrics, run.facts.environment.machine_cores
    if machine is None or "host_cpu_busy" not in metrics or "host_cpu_cores" not in metrics:
        return None
    busy, own = metrics["host_cpu_busy"].mean, metrics["host_cpu_cores"].mean
    children = metrics["host_child_cores"].mean if "host_child_cores" in metrics else 0.0
    waiting = metrics["host_cpu_waiting"].mean if "host_cpu_waiting" in metrics else None
    blocked = metrics["host_cpu_blocked"].mean if "host_cpu_blocked" in metrics else None
    others = max(busy * machine - own - children, 0.0)
    return Contention(waiting, own, children, others, machine, busy, blocked)
