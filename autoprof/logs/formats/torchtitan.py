"""The console log of torchtitan, with or without colours and torchrun's ``[rank0]:``.

Source of the lines: ``log`` of ``MetricsProcessor`` in torchtitan/components/metrics.py; ``tps`` is tokens per second
and device since the line before. ``memory`` is the peak of the reserved memory since then.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="torchtitan", record=r"\bstep:\s*\d+\s+loss:", hints=FormatHints(units={"memory": "GiB"}), weight=1.15
)
