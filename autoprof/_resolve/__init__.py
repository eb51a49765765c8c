"""Marks → ``StepFrame``: what the marks mean (``plan``), and when and how long (``frames``)."""

from .raw import RawStep
from .resolver import Resolver
from .spans import BACKWARD_NAME

__all__ = ["BACKWARD_NAME", "RawStep", "Resolver"]
