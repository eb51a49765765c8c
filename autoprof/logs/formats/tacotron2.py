"""The log of NVIDIA's Tacotron 2: ``Train loss 0 43.14 Grad Norm 11.43 3.71s/it``: step, loss, norm, time.

Source of the lines: ``train`` in train.py of NVIDIA/tacotron2. The time begins after the batch was fetched.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="tacotron2",
    record=r"^Train loss \d+ [\d.]+ Grad Norm",
    hints=FormatHints(rename={}),
    unnamed=((r"Train loss (\d+) ", "step"), (r"Train loss \d+ ([\d.]+)", "loss")),
    weight=1.3,
)
