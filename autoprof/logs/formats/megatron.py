"""The log of Megatron-LM, and of Megatron-DeepSpeed with DeepSpeed's lines between.

Source of the lines: ``training_log`` in megatron/training/training.py, ``report_memory`` in megatron/training/utils.py.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="megatron",
    record=(
        r"iteration\s+\d+/\s*\d+\s*\||\(after \d+ iterations\) memory|validation loss at iteration|"
        r"RunningAvgSamplesPerSec|\[Rank \d+\] step="
    ),
    attached=r"^\s*time \(ms\) \||^\s+[a-z-]+ \.{3,}: \(",
    hints=FormatHints(
        rename={"after": "step", "batch_generator": "data_time", "consumed_tokens": "tokens"},
        units={"data_time": "ms", "memory": "MiB"},
    ),
    unnamed=((r"(?:\] \d+/|global_step=)(\d+), RunningAvgSamplesPerSec", "step"),),
    secondary_counter="step_0",
    weight=1.1,
)
