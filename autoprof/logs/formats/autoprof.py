"""autoprof's own records: ``steps.jsonl``."""

from __future__ import annotations

from typing import Final

from ._base import FormatHints
from ._json import JsonFormat

FORMAT: Final = JsonFormat(
    name="autoprof",
    priority=30,
    own_keys=frozenset({"phases_ms", "layout_id"}),
    hints=FormatHints(
        rename={"phases_ms_data": "data_time", "memory_peak_bytes": "memory", "memory_rss_bytes": "memory"},
        units={"data_time": "ms", "memory": "bytes"},
    ),
    ignored_keys=frozenset(
        {
            "layout",
            "spans",
            "spans_at",
            "layout_id",
            "dropped",
            "overhead_ns",
            "duration_ns",
            "device_duration_ns",
            "not_finite",
        }
    ),
)
