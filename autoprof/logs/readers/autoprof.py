"""autoprof's own ``steps.jsonl``."""

from __future__ import annotations

from typing import Final

from ..pairs import Hints
from .objects import JsonFormat

AUTOPROF: Final = JsonFormat(
    "autoprof",
    marks=frozenset({"phases_ms", "layout_id"}),
    hints=Hints(
        rename={"phases_ms_data": "data_time", "memory_peak_bytes": "memory", "memory_rss_bytes": "memory"},
        units={"data_time": "ms", "memory": "bytes"},
    ),
    leave=frozenset(
        {"layout", "spans", "layout_id", "dropped", "overhead_ns", "duration_ns", "device_duration_ns", "not_finite"}
    ),
)
