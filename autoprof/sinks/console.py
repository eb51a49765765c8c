"""The live display: a panel pinned to the bottom of a terminal, or a plain line now and then where there is none."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import TYPE_CHECKING, Final

from ..render.card import verdict_line
from ..render.panel import render_panel
from ..render.plain import render_plain
from ..render.summary_text import render_summary
from ..render.text import safe
from ..span import StepFrame
from ..summary import Summary
from .base import RunInfo
from .terminal import SPARE_ROWS, PinnedLines

if TYPE_CHECKING:
    from ..config.schema import ConsoleOptions

SUMMARY_NAMES: Final = 12
"""Names in the report at the end on a terminal; ``summary.txt`` has more."""


class ConsoleSink:
    """Show the run on its stream.

    On a terminal the panel is redrawn at most each Nth step and every ``interval_s`` seconds, or a line printed where
    there is no room for it. Elsewhere each Nth step prints a line. A stream that fails makes ``write`` raise, after
    the screen has been given back as far as the stream still takes it.
    """

    def __init__(self, options: ConsoleOptions, run: RunInfo) -> None:
        self._options = options
        self._run = run
        self._pinned = PinnedLines(run.stream)
        self._color = "NO_COLOR" not in os.environ or not os.environ["NO_COLOR"]
        self._encoding = getattr(run.stream, "encoding", None) or "ascii"
        self._left = options.every
        self._step = 0
        self._due = float("-inf")
        self._on_terminal = False
        self._verdict: str | None = None
        atexit.register(self._give_back)
        self._pinned.guard()

    def write(self, frame: StepFrame) -> None:
        """Count the step, and draw when it is time; between drawings this is next to nothing."""
        self._left -= 1
        self._step = frame.step
        if self._left > 0:
            return
        now = self._run.clock()
        if self._on_terminal and now < self._due:
            return
        self._show(now)

    def rest(self, seconds: float) -> None:
        """Redraw the panel where it would stand still for longer than its interval without the last steps in it."""
        if self._on_terminal and self._left < self._options.every and seconds >= self._options.interval_s:
            self._show(self._run.clock())

    def _show(self, now: float) -> None:
        self._left = self._options.every
        self._due = now + self._options.interval_s
        try:
            size = PinnedLines.terminal_size(self._run.stream)
            self._on_terminal = size is not None
            if size is None or not self._draw(size):
                self._pinned.clear()
                self._print_line()
        except BaseException:
            self._give_back()
            raise

    def _draw(self, size: tuple[int, int]) -> bool:
        """Draw the panel; say whether there was room for it."""
        columns, rows = size
        panel = render_panel(
            self._run.summary(),
            width=columns,
            top=self._options.top,
            color=self._color,
            step=self._step,
            encoding=self._encoding,
        )
        if rows < len(panel) + SPARE_ROWS or not self._pinned.is_free():
            return False
        self._pinned.draw(panel, size)
        return True

    def _print_line(self) -> None:
        summary = self._run.summary()
        line = render_plain(summary, step=self._step, encoding=self._encoding)
        verdict = verdict_line(summary, gain=False)
        if verdict is not None and verdict != self._verdict:  # said when it changes, not each time
            self._verdict = verdict
            line += "\n" + safe(f"autoprof | verdict: {verdict_line(summary)}", self._encoding)
        self._run.stream.write(f"\n{line}\n" if self._on_terminal else f"{line}\n")  # a bar may hold the line
        self._run.stream.flush()

    def close(self, summary: Summary) -> None:
        """Give the screen back and print the report, which stays."""
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
