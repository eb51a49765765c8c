"""The bar of pytorch-classification: ``Processing |##  | (10/391) Data: 0.003s | Batch: 0.123s | … | Loss: 4.1``.

Source of the lines: ``train`` in cifar.py and imagenet.py of bearpaw/pytorch-classification, and of many copies. All
values are means of the epoch so far (``AverageMeter.avg``).
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

_MEAN: Final = "mean of the epoch so far"
FORMAT: Final = TextFormat(
    name="pytorch classification",
    record=r"\bData: \S+s \| Batch: \S+s \| Total: .*\bLoss: ",
    hints=FormatHints(qualifiers={"data": _MEAN, "batch": _MEAN, "loss": _MEAN}, rename={"total": ""}),
    weight=1.3,
)
