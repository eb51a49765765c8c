"""The JSON lines of mmengine and mmcv: ``scalars.json`` and ``*.log.json``."""

from __future__ import annotations

from typing import Final

from ._json import JsonFormat
from .mmengine import HINTS

FORMAT: Final = JsonFormat(name="mmengine scalars", priority=30, own_keys=frozenset({"time", "data_time"}), hints=HINTS)
