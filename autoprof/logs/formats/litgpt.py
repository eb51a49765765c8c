"""The log of LitGPT: ``Epoch 1 | iter 4 step 1 | loss train: 9.530, val: n/a | iter time: 126.21 ms``.

Source of the lines: ``fit`` in litgpt/pretrain.py. ``iter`` counts micro-batches, ``step`` optimizer steps. ``iter
time`` is that of the last micro-batch without the wait for it; the loss is the mean of the step's micro-batches.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="litgpt",
    record=r"\| iter \d+ step \d+ \|",
    hints=FormatHints(rename={"iter_time": "", "iter": "", "val_time": ""}),
    weight=1.3,
)
