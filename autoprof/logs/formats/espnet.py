"""The log of ESPnet's trainer: ``1epoch:train:1-100batch: iter_time=…``.

Source of the lines: ``SubReporter.log_message`` in espnet2/train/reporter.py. ``iter_time`` is the time of waiting for
a batch, ``train_time`` that of an optimizer step with all its batches (``train_one_epoch`` in
espnet2/train/trainer.py): means of the interval. ``1-100batch`` counts the batches of the epoch.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="espnet",
    record=r"\d+epoch:train:\d+-\d+batch: ",
    hints=FormatHints(
        rename={"iter_time": "data_time", "train_time": "step_time_s", "optim0_lr0": "lr", "trainer": ""},
        units={"step_time_s": "s", "data_time": "s"},
    ),
    unnamed=((r"\b(\d+)epoch:train", "epoch"), (r"-(\d+)batch:", "step")),
    weight=1.3,
)
