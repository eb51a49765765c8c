"""Logs of training runs of any tool: ``load_logs`` reads them into a table, ``plot_metrics`` draws the table."""

from .figure import plot_metrics
from .load import load_logs

__all__ = ["load_logs", "plot_metrics"]
