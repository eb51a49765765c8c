"""The log of PaddleClas: ``ppcls INFO: [Train][Epoch 1/120][Iter: 0/20018]lr(…): 0.1, loss: …``.

Source of the lines: ``log_info`` in ppcls/engine/train/utils.py. All values but lr are means (``AverageMeter.avg``):
``loss`` of the epoch so far, ``batch_cost``, ``reader_cost`` and ``ips`` since the sixth batch of the epoch
(``train_epoch`` in ppcls/engine/train/train.py). ``Iter`` counts batches.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="paddleclas",
    record=r"ppcls INFO: \[(?:Train|Eval)\]",
    hints=FormatHints(
        rename={"batch_cost": "", "reader_cost": "", "ips": ""}, qualifiers={"loss": "mean of the epoch so far"}
    ),
    weight=1.3,
)
