"""The console log of detectron2.

Source of the lines: ``CommonMetricPrinter`` in detectron2/utils/events.py. Times are in seconds; ``max_mem`` is in MiB,
written with the letter M. ``time`` is the mean of all steps so far, ``last_time`` that of the last step. Losses are
medians of the last 20 steps.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

HINTS: Final = FormatHints(
    rename={"iter": "step", "iteration": "step"}, units={"step_time_s": "s", "data_time": "s", "memory": "MiB"}
)
FORMAT: Final = TextFormat(
    name="detectron2",
    record=r"\biter: \d+\s+\w*loss",
    hints=FormatHints(rename={**HINTS.rename, "time": ""}, units=HINTS.units),
    weight=1.1,
)
