"""Lines pinned to the bottom of a terminal while everything else scrolls above them.

The terminal scrolls only the rows above the panel (DECSTBM, as apt sets it for its progress line), so a program's own
prints, and progress bars that rewrite their line, keep the cursor and work as before. Each drawing is one write that
saves and restores the cursor, and sets the margins again: a full-screen program or a ``reset`` removes them. Nothing is
read from the terminal. A program that is killed leaves the margins; ``reset`` removes them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TextIO

from ..base.text_output import TextOutput

SPARE_ROWS: Final = 6
"""Rows that must remain for the program; a smaller terminal gets no panel."""

_RESET_MARGINS: Final = "\x1b7\x1b[r\x1b8"
"""Let the whole screen scroll, and keep the cursor's place."""
_BEGIN: Final = "\x1b[?2026h"
"""Show the drawing at once, at its end; terminals without synchronized updates ignore it."""
_DRAW: Final = "\x1b7\x1b[?7l"
"""Save the cursor's place, and do not wrap lines."""
_END: Final = "\x1b[?7h\x1b8\x1b[?2026l"
"""Wrap lines again, restore the cursor's place, and show the drawing."""


class PinnedLines:
    """Lines at the bottom of ``stream``'s terminal. Only the process that made the object draws, not its forks."""

    _holder: PinnedLines | None = None
    """The object whose lines are shown: a terminal has room for the panel of one session."""

    def __init__(self, output: TextOutput) -> None:
        self._output = output
        self._owner = os.getpid()
        self._size: tuple[int, int] | None = None
        self._height = 0

    @staticmethod
    def terminal_size(stream: TextIO) -> tuple[int, int] | None:
        """Return columns and rows, or None where ``stream`` is not a terminal that shows a panel.

        That is a file, a pipe, a dumb terminal, the log of a CI job, and a terminal that a shell has taken back from
        this process (``bg``).
        """
        environment = os.environ
        try:
            if not stream.isatty() or environment.get("TERM", "") in ("", "dumb"):
                return None
            if environment.get("CI", "").lower() not in ("", "0", "false") or not _in_foreground(stream.fileno()):
                return None
            columns, rows = os.get_terminal_size(stream.fileno())
        except (OSError, ValueError, AttributeError):  # closed, replaced by an object, or not backed by a file
            return None
        return (columns, rows) if columns > 0 and rows > 0 else None

    def is_free(self) -> bool:
        """Return whether no other panel of this process is shown."""
        return PinnedLines._holder in (None, self)

    def draw(self, lines: Sequence[str], size: tuple[int, int]) -> None:
        """Show ``lines``, none wider than the terminal of this size (columns, rows); reserve their rows first.

        Nothing is drawn while the terminal takes no output.
        """
        rows = size[1]
        PinnedLines._holder = self
        changed = size != self._size or len(lines) != self._height
        setup = (self._release() if changed else _RESET_MARGINS) + self._reserve(len(lines), rows)
        first = rows - len(lines) + 1
        drawn = "".join(f"\x1b[{first + i};1H\x1b[2K{line}" for i, line in enumerate(lines))
        if self._output.offer(f"{_BEGIN}{setup}{_DRAW}{drawn}{_END}"):
            self._size, self._height = size, len(lines)

    def clear(self, *, patient: bool = False) -> None:
        """Remove the lines and restore the whole screen; do nothing where no lines are shown.

        A terminal that takes no output keeps them until the next call; ``patient`` waits some seconds for it.
        """
        release = self._release()
        if PinnedLines._holder is self:
            PinnedLines._holder = None
        write = self._output.write if patient else self._output.offer
        if release and os.getpid() == self._owner and not write(release):
            return
        self._height, self._size = 0, None

    @property
    def shown_size(self) -> tuple[int, int] | None:
        """The terminal's columns and rows at the last drawing; None where no lines are shown."""
        return self._size

    def _release(self) -> str:
        # The cursor is above the panel, so erasing below it also removes lines that a resize has moved or folded.
        return f"{_RESET_MARGINS}\x1b[J" if self._height else ""

    @staticmethod
    def _reserve(height: int, rows: int) -> str:
        # Move down and up again (ESC D scrolls at the bottom), and set the margins, which would move the cursor.
        return "\x1bD" * height + f"\x1b[{height}A\x1b7\x1b[1;{rows - height}r\x1b8"


def _in_foreground(fd: int) -> bool:
    """Return whether the shell lets this process use its terminal; True where no shell controls it."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except (OSError, AttributeError):
        return True
