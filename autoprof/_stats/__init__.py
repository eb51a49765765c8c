"""Running statistics of a run: constant memory whatever the number of steps, mergeable across windows and ranks.

A row is a name × phase × lane. What a step contributes to its rows is found once a layout (``rows``); steps of one
layout are collected into a block and folded in together (``fold``), so that a step costs a copy and the arithmetic is
paid once a block. Everything is integer nanoseconds; quantiles come from logarithmic bins (``table``; DDSketch,
Masson et al. 2019: a bin's width is a fixed ratio, so the relative error is bounded).
"""

from .aggregate import UNTIMED_STEPS, Aggregate
from .rows import RowKey, StepRows, step_rows

__all__ = ["UNTIMED_STEPS", "Aggregate", "RowKey", "StepRows", "step_rows"]
