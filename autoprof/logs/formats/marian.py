"""The log of Marian: ``Ep. 1 : Up. 1000 : Sen. 62,000 : Cost 7.12 : Time 45.30s : 12345.67 words/s``.

Source of the lines: ``Scheduler::update`` in marian-dev/src/training/scheduler.h. ``Time`` is the time since the line
before, of as many updates as lie between them.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="marian",
    record=r"Ep\. [\d.]+ : Up\. \d+",
    hints=FormatHints(rename={"up": "step", "sen": "samples", "cost": "loss", "time": "", "l_r": "lr", "ep": "epoch"}),
    weight=1.3,
)
