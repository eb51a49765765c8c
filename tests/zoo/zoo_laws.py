"""The laws of the account live beside the engine's tests; this is the way to them, however the zoo is started."""

from __future__ import annotations

import sys
from pathlib import Path

_ENGINE = str(Path(__file__).resolve().parents[1] / "engine")
if _ENGINE not in sys.path:
    sys.path.append(_ENGINE)

from engine_laws import Watched, check_laws, count, everything  # noqa: E402

__all__ = ["Watched", "check_laws", "count", "everything"]
