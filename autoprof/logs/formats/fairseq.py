"""The text log of fairseq: the lines ``train_inner`` and ``valid``.

Source of the lines: ``SimpleProgressBar`` in fairseq/logging/progress_bar.py. The lines ``train`` at the end of an
epoch are averages of the epoch and are skipped. fairseq's JSON lines are read by the format ``jsonl``.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="fairseq",
    record=r"\| train_inner \| epoch|\| valid \| epoch|\| valid on '|^\| epoch \d+: ",
    hints=FormatHints(rename={"wall": "elapsed_s", "num_updates": "step"}, units={"elapsed_s": "s"}),
    weight=1.1,
)
