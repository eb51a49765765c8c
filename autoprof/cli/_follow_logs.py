"""``autoprof inspect --follow``: show logs while they grow, in place on a terminal, else a line per change."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from .._reports.text import elide

if TYPE_CHECKING:
    from ..logs.follow import FollowedLogs

_CLOCK: Final = "%H:%M:%S"
_MIN_HEIGHT: Final = 4


def show_readings(
    readings: Iterable[FollowedLogs], write_files: Callable[[Any], list[str]], to_json: Callable[[Any], str] | None
) -> None:
    """Show each reading, and write its files. ``to_json`` makes the line of a table, for programs."""
    if to_json is None and sys.stdout.isatty():
        _show_in_place(readings, write_files)
        return
    for found in readings:
        if found.table is not None:
            write_files(found.table)
        print(_line(found, to_json), flush=True)


def _line(found: FollowedLogs, to_json: Callable[[Any], str] | None) -> str:
    from ..logs.report import render_line

    if to_json is not None:
        return "{}" if found.table is None else to_json(found.table)
    text = [] if found.table is None else [render_line(found.table, encoding=_encoding())]
    return "  ".join([time.strftime(_CLOCK), *text, *(f"({note})" for note in found.notes)])


def _show_in_place(readings: Iterable[FollowedLogs], write_files: Callable[[Any], list[str]]) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from ..logs.report import render_report

    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as display:
        for found in readings:
            width, height = shutil.get_terminal_size()
            files = [] if found.table is None else write_files(found.table)
            lines = [] if found.table is None else render_report(found.table, width=width, encoding=_encoding())
            head = f"read at {time.strftime(_CLOCK)}, again when the log has changed; Ctrl-C ends"
            lines = [*lines, *(elide(text, width) for text in (*files, *found.notes)), elide(head, width)]
            if len(lines) >= height:  # a display higher than the screen cannot be drawn over
                kept = max(height - 3, _MIN_HEIGHT)
                lines = [*lines[:kept], f"({len(lines) - kept - 1} more lines: a larger window shows them)", lines[-1]]
            display.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "ascii"
