"""The log of DeepSpeed's engine: the progress line of each ``steps_per_print`` steps and the throughput timer's line.

Source of the lines: ``_report_progress`` in deepspeed/runtime/engine.py, and ``ThroughputTimer`` in
deepspeed/utils/timer.py, which divides by 1024 three times and writes GB. ``CurrSamplesPerSec`` is of the last step
from its first forward on; ``global_step`` counts the steps of this process; ``step`` those of
the run, so it is the counter where both are printed.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="deepspeed",
    record=r"RunningAvgSamplesPerSec=|\[Rank \d+\] step=\d+",
    attached=r"\[Rank \d+\] time \(ms\) \|",
    hints=FormatHints(units={"memory": "GiB"}),
    unnamed=((r"(?:\] \d+/|global_step=)(\d+), RunningAvgSamplesPerSec", "step"),),
    secondary_counter="step_0",
    weight=1.15,
)
