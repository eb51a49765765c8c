"""The log of WeNet: ``TRAIN | steps/sec 3.200| Batch 0/100 loss 67.5``: epoch and batch.

Source of the lines: ``log_per_step`` in wenet/utils/train_utils.py. The batch is that of the epoch, or of the run if
checkpoints are saved by steps (``save_interval``). Older versions print ``TRAIN Batch 0/100 loss 67.5``.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="wenet",
    record=r"\bTRAIN (?:\|.*)?Batch \d+/\d+ loss",
    hints=FormatHints(rename={}),
    unnamed=((r"Batch (\d+)/", "epoch"), (r"Batch \d+/(\d+)", "step")),
    weight=2.0,
)
