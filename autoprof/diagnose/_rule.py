"""The shape of a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..base.summary import Finding
from ._bounds import MIN_SAMPLES
from ._evidence import Evidence
from ._experiment import Experiment

# Recorded steps before any rule judges, warm-up excluded.
MIN_STEPS: Final = MIN_SAMPLES


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its name and its judgement.

    ``judge`` returns a finding, an abstention (severity ``info``), or None where nothing stands out. ``order`` is the
    position among abstentions and among findings of equal gain; rules of equal order follow by name.
    ``needs_device``: on the CPU it is not asked. ``host_times``: it abstains where other
    processes hold the processors, if its ``share_low`` is below twice its ``bound``, and the wait for a processor may
    be the reason. ``comes_first``: its findings make the other figures doubtful, whatever the gain. ``needs_steps``: it
    judges recorded steps, and abstains while there are few; the others count events of any step. ``experiment``: the
    change that would confirm a finding, for ``autoprof explain``.
    """

    name: str
    judge: Callable[[Evidence], Finding | None]
    # Order of a rule that sets none: after the built-in ones.
    order: int = 1000
    needs_device: bool = False
    host_times: bool = True
    comes_first: bool = False
    needs_steps: bool = True
    experiment: Experiment | Callable[[Finding], Experiment] | None = None

    def experiment_for(self, finding: Finding) -> Experiment:
        """Return the change of the program that would confirm a finding of this rule."""
        if self.experiment is None:
            return Experiment("other", "edit", target=finding.name)
        return self.experiment if isinstance(self.experiment, Experiment) else self.experiment(finding)
