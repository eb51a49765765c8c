"""fairseq: the lines ``train_inner`` and ``valid`` of its simple progress bar; its JSON lines are the JSON reader's.

Source of the lines: ``SimpleProgressBar`` of fairseq/logging/progress_bar.py. The lines ``train`` at the end of
an epoch are averages of the epoch and are left out.
"""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .text import TextFormat

FAIRSEQ: Final = TextFormat(
    "fairseq",
    record=r"\| train_inner \| epoch|\| valid \| epoch|\| valid on '|^\| epoch \d+: ",
    hints=Hints(rename={"wall": "elapsed_s", "num_updates": "step"}, units={"elapsed_s": "s"}),
    weight=1.1,
)
