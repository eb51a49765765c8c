"""LLaMA-Factory's ``trainer_log.jsonl``. Its throughput is tokens, ``vram_allocated`` GB.

Source of the records: ``LogCallback`` of llamafactory/train/callbacks.py.
"""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .objects import JsonFormat

LLAMA_FACTORY: Final = JsonFormat(
    "llamafactory",
    marks=frozenset({"current_steps", "total_steps"}),
    hints=Hints(rename={"throughput": "tokens_per_s", "total_tokens": "tokens"}, units={"memory": "GiB"}),
)
