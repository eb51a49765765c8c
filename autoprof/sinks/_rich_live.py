"""The live display of rich that the program shows on the same terminal: its progress bars, tables, full screens.

rich has the whole terminal's height for it and moves up by its rows at each refresh: with fewer rows it would be torn.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO


def proxied(stream: TextIO) -> TextIO:
    """Return the stream behind the proxy that rich installs during a live display: the proxy decodes control codes."""
    return getattr(stream, "rich_proxied_file", stream)


def live_rows() -> int:
    """Return the rows of the live display that is shown now; 0 without one. rich is never imported here."""
    console = getattr(sys.stdout, "_FileProxy__console", None)
    if console is None:
        return 0
    if getattr(console, "is_alt_screen", False):
        # Rows of a display on the alternate screen: no terminal has room beside it.
        return 1 << 20
    displays = getattr(console, "_live_stack", None) or [getattr(console, "_live", None)]  # rich 14.1, and before it
    return max(1, sum(map(_rows, displays)))


def _rows(display: Any) -> int:
    shape = getattr(getattr(display, "_live_render", None), "_shape", None)
    return shape[1] if shape else 0
