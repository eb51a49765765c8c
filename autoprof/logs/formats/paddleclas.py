"""The log of PaddleClas: ``ppcls INFO: [Train][Epoch 1/120][Iter: 0/20018]lr(…): 0.1, loss: …``.

Source of the lines: ``log_info`` in ppcls/engine/train/utils.py. ``batch_cost``, ``reader_cost`` and ``ips`` are means
of the epoch so far (``AverageMeter.avg``).
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="paddleclas",
    record=r"ppcls INFO: \[(?:Train|Eval)\]",
    hints=FormatHints(rename={"batch_cost": "", "reader_cost": "", "ips": ""}),
    weight=1.3,
)
