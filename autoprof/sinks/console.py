"""The live display: a panel pinned to the bottom of a terminal, or plain lines at intervals without a terminal."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import Final

from pydantic import Field

from .._options import Options
from .._reports.card import verdict_line
from .._reports.html import render_html
from .._reports.panel import render_panel
from .._reports.plain import render_plain, render_plain_verdict
from .._reports.short_text import render_short
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo
from ._kind import CloseOrder, SinkKind
from ._notebook import WIDTH, NotebookOutput
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

    On a terminal, and in a notebook, the panel is redrawn at most each Nth step and every ``interval_s`` seconds; where
    it does not fit, a line is printed. Elsewhere each Nth step prints a line. Where the stream fails, ``show`` restores
    the screen as far as possible and raises.
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
        self._redraws = False
        """Whether the last statistics were drawn in a place that is redrawn."""
        self._drawn: tuple[Summary, int, float] | None = None
        """The statistics in the panel, their last step, and when they were drawn first."""
        self._notebook = NotebookOutput.of_this_process()
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
            due = self._redraws and self._frames > 0 and idle_s >= options.interval_s
        else:
            due = self._frames >= options.every and not (self._redraws and self._clock() < self._due)
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

    def refresh(self) -> None:
        """Draw the panel again, with the age of its figures, where it is older than the interval."""
        if self._drawn is None:
            return
        summary, step, drawn_s = self._drawn
        now_s = self._clock()
        if now_s < self._due:
            return
        self._due = now_s + self._options.interval_s
        size = PinnedLines.terminal_size(self._stream)
        self._draw(summary, step, size, now_s - drawn_s)

    def _show_summary(self, summary: Summary, step: int) -> None:
        size = PinnedLines.terminal_size(self._stream)
        self._redraws = size is not None or self._notebook is not None
        self._drawn = (summary, step, self._clock()) if self._draw(summary, step, size, 0.0) else None
        if self._drawn is None:
            self._pinned.clear()
            self._print_line(summary, step, on_terminal=size is not None)

    def _draw(self, summary: Summary, step: int, size: tuple[int, int] | None, age_s: float) -> bool:
        """Draw the panel; return whether there is a place for it."""
        top = self._options.top
        if size is not None:
            encoding, color = self._encoding, self._color
            panel = render_panel(
                summary, width=size[0], top=top, color=color, step=step, age_s=age_s, encoding=encoding
            )
            fits = size[1] >= len(panel) + SPARE_ROWS and self._pinned.is_free()
            if fits:
                self._pinned.draw(panel, size)
            return fits
        if self._notebook is not None:
            self._notebook.draw(render_panel(summary, width=WIDTH, top=top, color=False, step=step, age_s=age_s))
        return self._notebook is not None

    def _print_line(self, summary: Summary, step: int, *, on_terminal: bool) -> None:
        line = render_plain(summary, step=step, encoding=self._encoding)
        verdict = verdict_line(summary, gain=False)
        if verdict is not None and verdict != self._verdict:  # printed when it changes, not each time
            self._verdict = verdict
            line += f"\n{render_plain_verdict(summary, encoding=self._encoding)}"
        self._stream.write(f"\n{line}\n" if on_terminal else f"{line}\n")  # a progress bar may be on the line
        self._stream.flush()

    def close(self, summary: Summary) -> None:
        """Restore the screen and print the short report, which remains; in a notebook, show it as HTML."""
        atexit.unregister(self._restore_screen)
        size = PinnedLines.terminal_size(self._stream)
        self._pinned.close()
        width = min(size[0], WIDEST) if size else 80
        report = "\n".join(render_short(summary, width=width, encoding=self._encoding, folder=self._folder))
        if self._notebook is not None and size is None:
            with contextlib.suppress(Exception):  # a kernel that ends may show nothing any more: print the text
                self._notebook.show(report, render_html(summary, self._folder))
                return
        self._stream.write(f"\n{report}\n")
        self._stream.flush()

    def _restore_screen(self) -> None:
        # A stream that is closed has no screen to restore.
        with contextlib.suppress(Exception):
            self._pinned.close()


SINK = SinkKind(ConsoleOptions, ConsoleSink, default=True, close_order=CloseOrder.TERMINAL)
