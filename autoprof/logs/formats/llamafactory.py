"""LLaMA-Factory's ``trainer_log.jsonl``. Its ``vram_allocated`` is in GiB.

Source of the records: ``LogCallback`` in src/llamafactory/train/callbacks.py. ``throughput`` is the mean since the
start: all tokens seen / the time since the process began to train. ``vram_allocated`` is the peak so far.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._json import JsonFormat

FORMAT: Final = JsonFormat(
    name="llamafactory",
    priority=30,
    own_keys=frozenset({"current_steps", "total_steps"}),
    hints=FormatHints(
        rename={"total_tokens": "tokens"}, units={"memory": "GiB"}, qualifiers={"throughput": "mean of the run so far"}
    ),
)
