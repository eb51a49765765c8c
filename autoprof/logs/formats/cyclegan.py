"""The log of pytorch-CycleGAN-and-pix2pix: ``(epoch: 1, iters: 100, time: 0.118, data: 0.226) D_A: 0.333``.

Source of the lines: ``Visualizer.print_current_losses`` in util/visualizer.py. ``time`` is divided by the batch size in
train.py: it is no time of a step. ``iters`` counts the images of the epoch, not the steps.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="cyclegan",
    record=r"\(epoch: \d+, iters: \d+, time: ",
    hints=FormatHints(rename={"time": "", "data": "", "iters": ""}),
    weight=1.3,
)
