"""``Target``: a module to time."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..frame import Phase

NO_RULE = -1
"""The ``rule`` of a target where the configuration has no rules."""


@dataclass(frozen=True, slots=True)
class Target:
    """A module to time: its name, the phases to time, and the index of the rule that chose it.

    Without ``shown`` it has no spans: its own time only counts for the phases of a step.
    """

    module: nn.Module
    fqn: str
    name: str
    phases: frozenset[Phase]
    memory: bool
    rule: int
    shapes: bool = False
    shown: bool = True
