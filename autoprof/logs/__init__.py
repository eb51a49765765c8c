"""Logs of trainings, whoever wrote them: ``load_logs`` makes a table of them, ``plot_metrics`` a figure of that."""

from .figure import plot_metrics
from .load import load_logs

__all__ = ["load_logs", "plot_metrics"]
