"""detectron2: the console's line of ``CommonMetricPrinter``, and ``metrics.json`` of ``JSONWriter``.

Source of the lines: detectron2/utils/events.py; times are seconds, ``max_mem`` is MiB with the letter M.
"""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .objects import JsonFormat
from .text import TextFormat

_HINTS: Final = Hints(
    rename={"iter": "step", "iteration": "step"}, units={"step_time_s": "s", "data_time": "s", "memory": "MiB"}
)
DETECTRON2: Final = TextFormat("detectron2", record=r"\biter: \d+\s+\w*loss", hints=_HINTS, weight=1.1)
METRICS_JSON: Final = JsonFormat("detectron2 metrics", marks=frozenset({"iteration", "eta_seconds"}), hints=_HINTS)
