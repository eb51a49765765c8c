"""The log of NVIDIA's Tacotron 2: ``Train loss 0 43.14 Grad Norm 11.43 3.71s/it``: step, loss, norm, time.

Source of the lines: ``train`` in train.py of NVIDIA/tacotron2. The time begins after the batch was fetched.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="tacotron2",
    record=r"^Train loss \d+ [\d.]+ Grad Norm|^Validation loss \d+: ",
    hints=FormatHints(qualifiers={"s_it": "without the wait for the batch"}),
    unnamed=(
        (r"Train loss (\d+) ", "step"),
        (r"Train loss \d+ ([\d.]+)", "loss"),
        (r"Grad Norm ([\d.]+)", "grad_norm"),
        (r"Validation loss (\d+): ", "step"),
        (r"Validation loss \d+: ([\d.]+)", "val_loss"),
    ),
    weight=1.3,
)
