"""The JSON lines of mmengine and mmcv: ``scalars.json`` and ``*.log.json``.

Source of the lines: ``LocalVisBackend`` in mmengine/visualization/vis_backend.py, which ``LoggerHook`` in
mmengine/hooks/logger_hook.py calls; ``TextLoggerHook`` in mmcv/runner/hooks/logger/text.py (mmcv 1).
"""

from __future__ import annotations

from typing import Final

from ._json import JsonFormat
from .mmengine import HINTS

FORMAT: Final = JsonFormat(name="mmengine scalars", priority=30, own_keys=frozenset({"time", "data_time"}), hints=HINTS)
