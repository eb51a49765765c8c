"""Marks → ``StepFrame``: the spans that the marks stand for (``planner``), and their times (``frames``, ``device``)."""

from .plan import BACKWARD_NAME
from .raw import RawStep
from .resolver import PENDING, Resolver

__all__ = ["BACKWARD_NAME", "PENDING", "RawStep", "Resolver"]
