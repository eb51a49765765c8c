"""Statistics → verdicts: one rule one small function, with its evidence, or an abstention with its reason."""

from __future__ import annotations

from .diagnosis import Diagnosis
from .environment import Surroundings
from .evidence import Evidence, Facts, LongStep, OptimizerFact
from .observer import Observer, evidence_of_run, facts_of, facts_of_run
from .optimizers import describe_optimizers
from .ranks import Watch
from .rules import RULES, diagnose, judge
from .signals import Signals

__all__ = [
    "RULES",
    "Diagnosis",
    "Evidence",
    "Facts",
    "LongStep",
    "Observer",
    "OptimizerFact",
    "Signals",
    "Surroundings",
    "Watch",
    "describe_optimizers",
    "diagnose",
    "evidence_of_run",
    "facts_of",
    "facts_of_run",
    "judge",
]
