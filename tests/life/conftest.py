"""Life around training: every test starts and ends with nothing of autoprof's in the process, as the engine's do."""

from __future__ import annotations

import sys
from pathlib import Path

ENGINE = str(Path(__file__).resolve().parents[1] / "engine")
if ENGINE not in sys.path:
    sys.path.insert(0, ENGINE)

from left_behind import nothing_left  # noqa: E402

__all__ = ["nothing_left"]
