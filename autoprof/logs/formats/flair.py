"""The log of Flair: ``epoch 1 - iter 10/52 - loss 1.57 - time (sec): 3.10 - samples/sec: 3182.61``.

Source of the lines: ``train_custom`` in flair/trainers/trainer.py. ``time``, ``samples/sec`` and ``loss`` are of the
epoch so far.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="flair",
    record=r"epoch \d+ - iter \d+/\d+ - loss ",
    hints=FormatHints(
        rename={"time_sec": "", "samples_sec": "", "time": ""}, qualifiers={"loss": "mean of the epoch so far"}
    ),
    weight=1.3,
)
