"""nanoGPT and its children: ``iter 0: loss …``, ``step 0: train loss …``, ``step:1/60 …``, ``s:0 trl:…``.

The speedrun's logs begin with the program's source; no line of it tells a step and a number measured there.
"""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .text import TextFormat

NANOGPT: Final = TextFormat(
    "nanogpt",
    record=(
        r"^\s*(?:iter|step)\s+\d+: (?:loss|train loss)|^\s*step:\d+(?:/\d+)?\s+\w+:|^s:\d+\s+t[re]l:|"
        r"^\s*step\s+\d+(?:/\d+)?\s*\|"
    ),
    hints=Hints(units={"step_time_s": "s", "elapsed_s": "s"}),
    weight=1.1,
)
