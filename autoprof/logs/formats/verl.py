"""The console log of verl: ``step:1 - actor/pg_loss:0.01 - timing_s/step:40.5 - perf/throughput:1234.5``.

Source of the lines: ``concat_dict_to_str`` in verl/utils/logger/aggregate_logger.py; ``perf/throughput`` is tokens per
second and GPU (``compute_throughout_metrics`` in verl/trainer/ppo/metric_utils.py). In older versions
``timing_s/step`` includes validation and checkpoint saving (``fit`` in verl/trainer/ppo/ray_trainer.py).
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="verl",
    record=r"\bstep:\d+ - .*(?:timing_s|actor|critic|perf)/",
    hints=FormatHints(rename={"perf_throughput": "tokens_per_s"}, units={"step_time_s": "s"}),
    weight=1.3,
)
