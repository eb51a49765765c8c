"""torchtitan: the console's line of ``MetricsProcessor``, with or without colours and torchrun's ``[rank0]:``.

Source of the line: ``log`` of torchtitan/components/metrics.py; ``tps`` is tokens per second and device.
"""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .text import TextFormat

TORCHTITAN: Final = TextFormat(
    "torchtitan", record=r"\bstep:\s*\d+\s+loss:", hints=Hints(units={"memory": "GiB"}), weight=1.15
)
