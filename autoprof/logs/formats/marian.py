"""The log of Marian: ``Ep. 1 : Up. 1000 : Sen. 62,000 : Cost 7.12 : Time 45.30s : 12345.67 words/s``.

Source of the lines: ``Scheduler::update`` in src/training/scheduler.h of marian-nmt/marian-dev. ``Time`` is the time
since the line before, with any validation in between. ``words/s`` and ``Cost`` are of the same interval. ``Sen.``
counts the sentences of the epoch; ``gNorm`` is a moving average over about 100 updates.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="marian",
    record=r"Ep\. [\d.]+ : Up\. \d+",
    hints=FormatHints(
        rename={"up": "step", "sen": "", "cost": "loss", "time": "", "l_r": "lr", "ep": "epoch"},
        qualifiers={"gnorm": "moving average"},
    ),
    weight=1.3,
)
