"""The log of MACE: ``INFO: Epoch 3: head: Default, loss=0.0123, MAE_E_per_atom= 12.31 meV, MAE_F= 45.10 meV / A``.

Source of the lines: ``valid_err_log`` in mace/tools/train.py of ACEsuit/mace: the loss is that of the validation.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="mace",
    record=r"\bEpoch \d+: .*\bloss=.*\b(?:MAE|RMSE)_\w+=",
    hints=FormatHints(rename={"loss": "val_loss"}),
    weight=1.3,
)
