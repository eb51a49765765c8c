"""The logs of nanoGPT and its derivatives: ``iter 0: loss …``, ``step 0: train loss …``, ``step:1/60 …``, ``s:0 trl:``.

Source of the lines: train.py of karpathy/nanoGPT, train_gpt.py of KellerJordan/modded-nanogpt (the speedrun),
train_gpt2.cu and llmc/logger.h of karpathy/llm.c. nanoGPT's ``mfu`` and llm.c's ``tok/s`` are moving averages.
nanoGPT's ``time`` includes an evaluation before the step. The speedrun's logs begin with the source code of the
program; no line of it matches ``record``.
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
    hints=FormatHints(units={"step_time_s": "s", "elapsed_s": "s"}),
    weight=1.1,
)
