"""DeepSpeed's engine: the line of each ``steps_per_print`` steps and that of its throughput timer.

Source of the lines: ``_report_progress`` of deepspeed/runtime/engine.py, ``ThroughputTimer`` of
deepspeed/utils/timer.py, which divides by 1024 three times and writes GB.
"""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .text import TextFormat

DEEPSPEED: Final = TextFormat(
    "deepspeed",
    record=r"RunningAvgSamplesPerSec=|\[Rank \d+\] step=\d+",
    attach=r"\[Rank \d+\] time \(ms\) \|",
    hints=Hints(units={"memory": "GiB"}),
    special=((r"(?:\] \d+/|global_step=)(\d+), RunningAvgSamplesPerSec", "step"),),
    weight=1.15,
)
