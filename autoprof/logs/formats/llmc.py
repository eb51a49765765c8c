"""The console of llm.c: ``step 1/19560 | loss 11.0 (+nanz)| norm 15.4 (+nanz)| lr 8.57e-07 | … | 524288 tok/s``.

Source of the lines: ``main`` in train_gpt2.cu of karpathy/llm.c. ``tok/s`` is a moving average (0.95 of the old value).
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="llm.c",
    record=r"^step\s+\d+/\d+ \| loss .*z\)\| norm .* tok/s",
    attached=r"^val loss [\d.]+$",
    hints=FormatHints(qualifiers={"tok_s": "moving average"}),
    weight=1.3,
)
