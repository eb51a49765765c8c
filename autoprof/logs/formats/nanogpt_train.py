"""The console of nanoGPT, ``iter 10: loss 9.1, time 2906.11ms, mfu 38.20%``, and llama2.c, ``10 | loss 9.1 | …``.

Source of the lines: train.py of karpathy/nanoGPT and of karpathy/llama2.c. ``mfu`` is a moving average (0.9 of the old
value). The time includes an evaluation before the step.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="nanogpt train",
    record=r"^iter \d+: loss \S+, time \S+ms, mfu |^\d+ \| loss .*ms \| mfu |^step \d+: train loss \S+, val loss ",
    hints=FormatHints(
        units={"step_time_s": "s"},
        qualifiers={"mfu": "moving average"},
        spoiled_by_validation=frozenset({"time"}),
    ),
    weight=1.3,
)
