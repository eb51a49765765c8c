"""Marks → ``StepFrame``: what the marks mean (``plan``), and when and how long (``resolver``)."""

from .resolver import RawStep, Resolver
from .spans import BACKWARD_NAME

__all__ = ["BACKWARD_NAME", "RawStep", "Resolver"]
