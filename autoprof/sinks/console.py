"""The live display: a panel pinned to the bottom of a terminal, or plain lines at intervals without a terminal."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import Final

from pydantic import Field

from .._options import Options
from .._reports.card import verdict_line
from .._reports.panel import render_panel
from .._reports.plain import render_plain
from .._reports.short_text import render_short
from .._reports.text import safe
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo
from ._kind import CloseOrder, SinkKind
from ._terminal import SPARE_ROWS, PinnedLines

WIDEST: Final = 100
"""Cells of the report at the end on a wider terminal."""


class ConsoleOptions(Options):
    """The live table on the terminal."""

    top: int = Field(default=5, ge=1, strict=True)
    """Number of names shown, the longest first."""
    every: int = Field(default=10, ge=1, strict=True)
    """Redraw at most each Nth step; where there is no terminal, print one plain line each Nth step."""
    interval_s: float = Field(default=0.5, ge=0, strict=True, allow_inf_nan=False)
    """The least time between two redraws, in seconds."""


class ConsoleSink:
    """Show the run on its stream.

    On a terminal the panel is redrawn at most each Nth step and every ``interval_s`` seconds; where it does not fit, a
    line is printed. Elsewhere each Nth step prints a line. Where the stream fails, ``show`` restores the screen as far
    as possible and raises.
    """

    def __init__(self, options: ConsoleOptions, run: RunInfo) -> None:
        self._options = options
        self._stream = run.stream
        self._clock = run.clock
        self._folder = None if run.folder is None else run.folder.path
        self._pinned = PinnedLines(run.stream)
        self._color = "NO_COLOR" not in os.environ or not os.environ["NO_COLOR"]
        self._encoding = getattr(run.stream, "encoding", None) or "ascii"
        self._frames = 0
        """Frames since a drawing was due."""
        self._due = float("-inf")
        self._on_terminal = False
        self._verdict: str | None = None
        atexit.register(self._restore_screen)
        self._pinned.guard()

    def write(self, frame: StepFrame) -> None:
        """Count the step."""
        self._frames += 1

    def due(self, idle_s: float | None = None) -> bool:
        """Return whether a drawing is due: after N frames, on a terminal also after the interval.

        Before a gap that is longer than the interval, a terminal shows the last steps at once.
        """
        options = self._options
        if idle_s is not None:
            due = self._on_terminal and self._frames > 0 and idle_s >= options.interval_s
        else:
            due = self._frames >= options.every and not (self._on_terminal and self._clock() < self._due)
        if due:
            self._frames = 0
            self._due = self._clock() + options.interval_s
        return due

    def show(self, summary: Summary, step: int) -> None:
        """Draw the panel, or print a line."""
        try:
            self._show_summary(summary, step)
        except BaseException:
            self._restore_screen()
            raise

    def _show_summary(self, summary: Summary, step: int) -> None:
        size = PinnedLines.terminal_size(self._stream)
        self._on_terminal = size is not None
        if size is None or not self._draw(summary, step, size):
            self._pinned.clear()
            self._print_line(summary, step)

    def _draw(self, summary: Summary, step: int, size: tuple[int, int]) -> bool:
        """Draw the panel; return whether it fits."""
        columns, rows = size
        panel = render_panel(
            summary,
            width=columns,
            top=self._options.top,
            color=self._color,
            step=step,
            encoding=self._encoding,
        )
        if rows < len(panel) + SPARE_ROWS or not self._pinned.is_free():
            return False
        self._pinned.draw(panel, size)
        return True

    def _print_line(self, summary: Summary, step: int) -> None:
        line = render_plain(summary, step=step, encoding=self._encoding)
        verdict = verdict_line(summary, gain=False)
        if verdict is not None and verdict != self._verdict:  # printed when it changes, not each time
            self._verdict = verdict
            line += "\n" + safe(f"autoprof | verdict: {verdict_line(summary)}", self._encoding)
        self._stream.write(f"\n{line}\n" if self._on_terminal else f"{line}\n")  # a progress bar may be on the line
        self._stream.flush()

    def close(self, summary: Summary) -> None:
        """Restore the screen and print the short report, which remains."""
        atexit.unregister(self._restore_screen)
        size = PinnedLines.terminal_size(self._stream)
        self._pinned.close()
        width = min(size[0], WIDEST) if size else 80
        report = render_short(summary, width=width, encoding=self._encoding, folder=self._folder)
        self._stream.write("\n" + "\n".join(report) + "\n")
        self._stream.flush()

    def _restore_screen(self) -> None:
        # A stream that is closed has no screen to restore.
        with contextlib.suppress(Exception):
            self._pinned.close()


SINK = SinkKind(ConsoleOptions, ConsoleSink, default=True, close_order=CloseOrder.TERMINAL)
