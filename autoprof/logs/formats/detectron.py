"""The log of Detectron, the first: ``json_stats: {"iter": 20, "loss": "1.23", "time": "0.61", …}``.

Source of the lines: ``TrainingStats.GetStats`` in detectron/utils/training_stats.py of facebookresearch/Detectron, and
``log_json_stats`` in detectron/utils/logging.py. ``time`` is the mean of all steps so far; ``mem`` is in MiB.
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._json import JsonFormat

FORMAT: Final = JsonFormat(
    name="detectron",
    priority=30,
    own_keys=frozenset({"iter", "eta", "mb_qsize"}),
    hints=FormatHints(units={"memory": "MiB"}, qualifiers={"time": "mean of the run so far"}),
)
