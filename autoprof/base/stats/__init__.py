"""Statistics of a run: running aggregates and confidence intervals.

``Aggregate`` takes frames and keeps statistics by row (name × phase × lane) in constant memory. ``intervals``
has the confidence intervals and tests that other modules use.
"""

from .aggregate import UNTIMED_STEPS, Aggregate
from .rows import step_rows

__all__ = ["UNTIMED_STEPS", "Aggregate", "step_rows"]
