"""detectron2's ``metrics.json``: JSON lines of ``JSONWriter`` in detectron2/utils/events.py.

Losses and times are medians of the last 20 steps.
"""

from __future__ import annotations

from typing import Final

from ._json import JsonFormat
from .detectron2 import HINTS

FORMAT: Final = JsonFormat(
    name="detectron2 metrics",
    priority=40,  # its records have the own keys of mmengine's as well
    own_keys=frozenset({"iteration", "eta_seconds"}),
    hints=HINTS,
)
