"""Marks → ``StepFrame``: the spans that the marks stand for (``planner``), and their times (``frames``, ``device``)."""

from .raw import RawStep
from .resolver import PENDING, Resolver

__all__ = ["PENDING", "RawStep", "Resolver"]
