"""The text log of mmengine and mmcv.

Source of the lines: ``LogProcessor`` in mmengine/runner/log_processor.py; ``TextLoggerHook`` in
mmcv/runner/hooks/logger/text.py (mmcv 1). Times are in seconds, memory is in MiB. mmengine's losses and times are means
of the last steps, 10 by default.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

HINTS: Final = FormatHints(
    rename={"iter_train": "step", "epoch_train": "epoch", "epoch_val": "epoch", "epoch_test": "epoch"},
    units={"step_time_s": "s", "data_time": "s", "memory": "MiB"},
)
FORMAT: Final = TextFormat(
    name="mmengine",
    record=r"(?:Epoch|Iter)\((?:train|val|test)\)\s+\[|Epoch \[\d+\]\[\d+/\d+\]|Iter \[\d+/\d+\]",
    hints=HINTS,
    weight=1.1,
)
