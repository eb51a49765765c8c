"""Megatron-LM, and Megatron-DeepSpeed with DeepSpeed's own lines between.

Source of the lines: ``training_log`` of megatron/training/training.py, ``report_memory`` of megatron/training/utils.py.
"""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .text import TextFormat

MEGATRON: Final = TextFormat(
    "megatron",
    record=(
        r"iteration\s+\d+/\s*\d+\s*\||\(after \d+ iterations\) memory|validation loss at iteration|"
        r"RunningAvgSamplesPerSec|\[Rank \d+\] step="
    ),
    attach=r"^\s*time \(ms\) \|",
    hints=Hints(
        rename={"after": "step", "batch_generator": "data_time", "consumed_tokens": "tokens"},
        units={"data_time": "ms", "memory": "MiB"},
    ),
    special=((r"(?:\] \d+/|global_step=)(\d+), RunningAvgSamplesPerSec", "step"),),
    weight=1.1,
)
