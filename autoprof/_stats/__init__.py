"""Statistics of a run: running aggregates, confidence intervals, and the tree of names.

``Aggregate`` takes frames and keeps statistics by row (name × phase × lane) in constant memory. ``intervals``
has the confidence intervals and tests that other modules use. ``name_tree`` and ``name_lines`` nest names for steps and
for summaries.
"""

from .aggregate import UNTIMED_STEPS, Aggregate
from .rows import RowKey, StepRows, step_rows

__all__ = ["UNTIMED_STEPS", "Aggregate", "RowKey", "StepRows", "step_rows"]
