"""The models of the work tests and the made-up devices are shared with the tests of those rooms."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("flops", "devices", "engine"):
    sys.path.append(str(Path(__file__).parent.parent / room))

from left_behind import nothing_left  # noqa: E402

__all__ = ["nothing_left"]
