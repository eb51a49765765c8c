"""The live display: a panel pinned to the bottom of a terminal, or a plain line now and then where there is none."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator
from typing import Final

from pydantic import Field

from .._options import Options
from .._reports.card import verdict_line
from .._reports.panel import render_panel
from .._reports.plain import render_plain
from .._reports.summary_text import render_summary
from .._reports.text import safe
from .._units import NS_PER_S
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo
from ._kind import CloseOrder, SinkKind
from ._terminal import SPARE_ROWS, PinnedLines

SUMMARY_NAMES: Final = 12
"""Names in the report at the end on a terminal; ``summary.txt`` has more."""
PART_S: Final = 0.0005
"""The time after which the rest of what there is to compute is left to the next step: no step is to stand out."""
SHARE: Final = 0.02
"""The share of a long step that may be spent at once."""


class ConsoleOptions(Options):
    """The live table on the terminal."""

    top: int = Field(default=5, ge=1, strict=True)
    """How many names are shown, the longest first."""
    every: int = Field(default=10, ge=1, strict=True)
    """Redraw at most each Nth step; where there is no terminal, print one plain line each Nth step."""
    interval_s: float = Field(default=0.5, ge=0, strict=True, allow_inf_nan=False)
    """The least time between two redraws, in seconds."""


class ConsoleSink:
    """Show the run on its stream.

    On a terminal the panel is redrawn at most each Nth step and every ``interval_s`` seconds, or a line printed where
    there is no room for it. Elsewhere each Nth step prints a line. What is shown is computed in parts, at the ends of
    several steps where they are short. A stream that fails makes ``write`` raise, after the screen has been given back
    as far as the stream still takes it.
    """

    def __init__(self, options: ConsoleOptions, run: RunInfo) -> None:
        self._options = options
        self._run = run
        self._pinned = PinnedLines(run.stream)
        self._color = "NO_COLOR" not in os.environ or not os.environ["NO_COLOR"]
        self._encoding = getattr(run.stream, "encoding", None) or "ascii"
        self._left = options.every
        self._step = self._shown = 0
        self._parts: Iterator[Summary] | None = None
        """What is left to compute of a drawing that has begun."""
        self._summary: Summary | None = None
        self._due = float("-inf")
        self._on_terminal = False
        self._verdict: str | None = None
        atexit.register(self._give_back)
        self._pinned.guard()

    def write(self, frame: StepFrame) -> None:
        """Count the step, and draw when it is time; between drawings this is next to nothing."""
        self._left -= 1
        self._step = frame.step
        if self._left > 0 and self._parts is None:
            return
        now = self._run.clock()
        if self._parts is None and self._on_terminal and now < self._due:
            return
        self._show(now, max(PART_S, SHARE * frame.duration_ns / NS_PER_S))

    def rest(self, seconds: float) -> bool:
        """Redraw the panel where it would stand still for longer than its interval without the last steps in it."""
        still = self._on_terminal and self._left < self._options.every and seconds >= self._options.interval_s
        if still or self._parts is not None:
            self._show(self._run.clock(), PART_S)
        return self._parts is None

    def _show(self, now: float, seconds: float) -> None:
        """Begin a drawing, or go on with it for about this long."""
        try:
            if self._parts is None:
                self._left = self._options.every
                self._due = now + self._options.interval_s
                self._shown = self._step
                self._parts = self._run.refined()
            for summary in self._parts:
                self._summary = summary
                if self._run.clock() > now + seconds:
                    return
            self._parts = None
            if self._summary is not None:
                self._show_summary(self._summary)
        except BaseException:
            self._parts = None
            self._give_back()
            raise

    def _show_summary(self, summary: Summary) -> None:
        size = PinnedLines.terminal_size(self._run.stream)
        self._on_terminal = size is not None
        if size is None or not self._draw(summary, size):
            self._pinned.clear()
            self._print_line(summary)

    def _draw(self, summary: Summary, size: tuple[int, int]) -> bool:
        """Draw the panel; say whether there was room for it."""
        columns, rows = size
        panel = render_panel(
            summary,
            width=columns,
            top=self._options.top,
            color=self._color,
            step=self._shown,
            encoding=self._encoding,
        )
        if rows < len(panel) + SPARE_ROWS or not self._pinned.is_free():
            return False
        self._pinned.draw(panel, size)
        return True

    def _print_line(self, summary: Summary) -> None:
        line = render_plain(summary, step=self._shown, encoding=self._encoding)
        verdict = verdict_line(summary, gain=False)
        if verdict is not None and verdict != self._verdict:  # said when it changes, not each time
            self._verdict = verdict
            line += "\n" + safe(f"autoprof | verdict: {verdict_line(summary)}", self._encoding)
        self._run.stream.write(f"\n{line}\n" if self._on_terminal else f"{line}\n")  # a bar may hold the line
        self._run.stream.flush()

    def close(self, summary: Summary) -> None:
        """Give the screen back and print the report, which stays."""
        if self._parts is not None:
            self._show(self._run.clock(), float("inf"))
        atexit.unregister(self._give_back)
        size = PinnedLines.terminal_size(self._run.stream)
        self._pinned.close()
        report = render_summary(
            summary, width=min(size[0], 120) if size else 80, top=SUMMARY_NAMES, encoding=self._encoding
        )
        self._run.stream.write("\n" + "\n".join(report) + "\n")
        self._run.stream.flush()

    def _give_back(self) -> None:
        # A stream that is closed or gone has no screen to give back.
        with contextlib.suppress(Exception):
            self._pinned.close()


SINK = SinkKind(ConsoleOptions, ConsoleSink, default=True, close_order=CloseOrder.TERMINAL)
