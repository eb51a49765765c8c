"""The log of WeNet: ``TRAIN | steps_per_second 3.2| Batch 0/100 loss 67.5``: epoch and batch.

Source of the lines: ``log_per_step`` in wenet/utils/train_utils.py.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="wenet",
    record=r"TRAIN \|.*Batch \d+/\d+ loss",
    hints=FormatHints(rename={}),
    unnamed=((r"Batch (\d+)/", "epoch"), (r"Batch \d+/(\d+)", "step")),
    weight=2.0,
)
