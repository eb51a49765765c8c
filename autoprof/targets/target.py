"""``Target``: a module to time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from ..base.frame import Phase
from ..base.weak import Weak

NO_RULE = -1
"""The ``rule`` of a target where the configuration has no rules."""


@dataclass(frozen=True)
class Target:
    """A module to time: its name, the phases to time, and the index of the rule that chose it.

    Without ``shown`` it has no spans: its own time only counts for the phases of a step. A target does not keep its
    module alive: ``module`` raises ``ReferenceError`` once the program has dropped the model.
    """

    if TYPE_CHECKING:
        module: nn.Module
    else:
        module: nn.Module = Weak()
    fqn: str
    name: str
    phases: frozenset[Phase]
    memory: bool
    rule: int
    shapes: bool = False
    shown: bool = True

    def __hash__(self) -> int:
        """Return a hash that is the same after the module has gone."""
        return hash((self.fqn, self.name, self.rule))

    def __repr__(self) -> str:
        """Name the target without the representation of its module, which may take pages or exist no longer."""
        phases = ", ".join(phase for phase in Phase if phase in self.phases)
        return f"Target({self.name!r}, fqn={self.fqn!r}, phases=[{phases}], memory={self.memory}, rule={self.rule})"
