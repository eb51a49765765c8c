"""The logs of nanoGPT's derivatives: ``iter 0: loss …``, ``step 0: train loss …``, ``step:1/60 …``, ``s:0 trl:``.

Source of the lines: train_gpt.py of KellerJordan/modded-nanogpt (the speedrun), train_gpt2.py of
karpathy/build-nanogpt, llmc/logger.h of karpathy/llm.c. The speedrun's logs begin with the source code of the program;
no line of it matches ``record``.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="nanogpt",
    record=(
        r"^\s*(?:iter|step)\s+\d+: (?:loss|train loss)|^\s*step:\d+(?:/\d+)?\s+\w+:|^s:\d+\s+t[re]l:|"
        r"^\s*step\s+\d+(?:/\d+)?\s*\|"
    ),
    hints=FormatHints(rename={"s": "step"}, units={"step_time_s": "s", "elapsed_s": "s"}),
    weight=1.1,
)
