"""The log of nanochat: ``step 00010/21400 (0.05%) | loss: 9.12 | lrm: 1.00 | dt: 512.33ms | tok/sec: 1,023,456``.

Source of the lines: scripts/base_train.py of karpathy/nanochat. ``loss`` is a moving average (0.9 of the old value),
``lrm`` the multiplier of the learning rates, ``total time`` is cumulative.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="nanochat",
    record=r"^step \d+(?:/\d+)? \([\d.]+%\) \| loss: .*\| lrm: ",
    hints=FormatHints(qualifiers={"loss": "moving average"}),
    weight=1.3,
)
