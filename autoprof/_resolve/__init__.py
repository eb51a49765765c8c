"""Marks → ``StepFrame``: the spans that the marks stand for (``planner``), and their times (``frames``, ``device``)."""

from .plan import BACKWARD_NAME
from .raw import RawStep
from .repeated import RepeatedSteps
from .resolver import MAX_READINGS, PENDING, Resolver

__all__ = ["BACKWARD_NAME", "MAX_READINGS", "PENDING", "RawStep", "RepeatedSteps", "Resolver"]
