"""mmengine and mmcv: the log of ``LoggerHook``, and its records as JSON (``scalars.json``, ``*.log.json``).

Source of the lines: ``LogProcessor`` of mmengine/runner/log_processor.py; times are seconds, memory is MiB.
"""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .objects import JsonFormat
from .text import TextFormat

_HINTS: Final = Hints(
    rename={"iter_train": "step", "epoch_train": "epoch", "epoch_val": "epoch", "epoch_test": "epoch"},
    units={"step_time_s": "s", "data_time": "s", "memory": "MiB"},
)
MMENGINE: Final = TextFormat(
    "mmengine",
    record=r"(?:Epoch|Iter)\((?:train|val|test)\)\s+\[|Epoch \[\d+\]\[\d+/\d+\]|Iter \[\d+/\d+\]",
    hints=_HINTS,
    weight=1.1,
)
SCALARS: Final = JsonFormat("mmengine scalars", marks=frozenset({"time", "data_time"}), hints=_HINTS)
