"""The live display: a panel pinned to the bottom of a terminal, or plain lines at intervals without a terminal."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from ..base.frame import StepFrame
from ..base.notes import has_open_bar
from ..base.options import Options
from ..base.summary import Summary
from ..base.text_output import TextOutput
from ..reports.card import verdict_line
from ..reports.panel import render_panel, render_plain, render_plain_verdict
from ..reports.short_text import render_short
from ..reports.text import in_encoding, safe
from ._base import RunInfo
from ._kind import CloseOrder, SinkKind
from ._terminal import SPARE_ROWS, PinnedLines

REDRAW_S: Final = 0.45
"""The least time between two drawings of the panel; passes over the steps come each half second."""


class ConsoleOptions(Options):
    """The live table on the terminal."""

    top: int = Field(default=5, ge=1, strict=True)
    """Number of names shown, the longest first."""
    every: int = Field(default=10, ge=1, strict=True)
    """Redraw, or print a line where there is no terminal, after N steps; with long steps after 10 s."""


class ConsoleSink:
    """Show the run on its stream.

    On a terminal the panel is redrawn after N steps, at most twice a second; where it does not fit, and elsewhere, a
    line is printed at times. A reader that does not read gets no drawing, and one that has left ends them. Where the
    stream fails otherwise, ``show`` restores the screen as far as possible and raises.
    """

    def __init__(self, options: ConsoleOptions, run: RunInfo) -> None:
        self._options = options
        # Behind the proxy that rich installs during a live display: it decodes control codes.
        self._stream = getattr(run.stream, "rich_proxied_file", run.stream)
        self._output = TextOutput(self._stream)
        self._clock = run.clock
        self._folder = None if run.folder is None else run.folder.path
        if self._folder is not None and run.reader is not None:
            self._folder = Path(os.path.relpath(self._folder, run.reader))
        self._pinned = PinnedLines(self._output)
        self._color = "NO_COLOR" not in os.environ or not os.environ["NO_COLOR"]
        self._encoding = getattr(self._stream, "encoding", None) or "ascii"
        self._frames = 0
        """Frames since a drawing was due."""
        self._started = self._last = run.clock()
        """When the run began, and when a drawing was due last."""
        self._due = float("-inf")
        self._is_drawn = False
        """Whether the last statistics are in the panel."""
        self._reader_left = False
        self._verdict: str | None = None
        atexit.register(self.restore_screen)

    def write(self, frame: StepFrame) -> None:
        """Count the step."""
        self._frames += 1

    def due(self) -> bool:
        """Return whether a drawing is due: after N frames or 10 s, and after the interval."""
        if not self._frames or self._reader_left:
            return False
        now_s = self._clock()
        # The time after which statistics are shown although fewer than N steps have passed.
        due = now_s >= self._due and (
            self._frames >= self._options.every or now_s >= self._last + 10.0 or self._is_resized()
        )
        if due:
            self._frames = 0
            self._last = now_s
        return due

    def _is_resized(self) -> bool:
        shown = self._pinned.shown_size
        return shown is not None and shown != PinnedLines.terminal_size(self._stream)

    def _interval_s(self) -> float:
        if self._is_drawn:
            return REDRAW_S
        # The share of the run's time that two lines are apart at least: a long run has a line less often.
        return min(max(10.0, 0.05 * (self._clock() - self._started)), 600.0)

    def show(self, summary: Summary, step: int) -> None:
        """Draw the panel, or print a line."""
        with self._restoring_screen():
            self._show_summary(summary, step)
        self._due = self._last + self._interval_s()

    @contextlib.contextmanager
    def _restoring_screen(self) -> Iterator[None]:
        """Restore the screen where the block fails; a reader that has left is no failure."""
        try:
            yield
        except BrokenPipeError:  # as ``head`` does when it has its lines
            self._reader_left = True
            self.restore_screen()
        except BaseException:
            self.restore_screen()
            raise

    def _show_summary(self, summary: Summary, step: int) -> None:
        size = PinnedLines.terminal_size(self._stream)
        self._is_drawn = self._draw(summary, step, size)
        if not self._is_drawn:
            self._pinned.clear()
            self._print_line(summary, step, on_terminal=size is not None)

    def _draw(self, summary: Summary, step: int, size: tuple[int, int] | None) -> bool:
        """Draw the panel; return whether there is a place for it."""
        if size is None:
            return False
        lines = render_panel(summary, width=size[0], top=self._options.top, color=self._color, step=step)
        fits = size[1] >= len(lines) + SPARE_ROWS and self._pinned.is_free() and _rich_proxy() is None
        if fits:
            self._pinned.draw([in_encoding(line, self._encoding) for line in lines], size)
        return fits

    def _print_line(self, summary: Summary, step: int, *, on_terminal: bool) -> None:
        line = render_plain(summary, step=step)
        verdict = verdict_line(summary, gain=False)
        if verdict is not None and verdict != self._verdict:  # printed when it changes, not each time
            self._verdict = verdict
            line += f"\n{render_plain_verdict(summary)}"
        line = in_encoding(line, self._encoding)
        proxy = _rich_proxy()
        if on_terminal and proxy is not None:
            TextOutput(proxy).offer(f"{line}\n")
            return
        before = "\n" if on_terminal or has_open_bar() else ""
        self._output.offer(f"{before}{line}\n")

    def close(self, summary: Summary) -> None:
        """Restore the screen and print the short report, which remains.

        A reader that does not read for some seconds gets no report; the files of the run have it.
        """
        atexit.unregister(self.restore_screen)
        size = PinnedLines.terminal_size(self._stream)
        with contextlib.suppress(BrokenPipeError):
            self._pinned.clear(patient=True)
            width = min(size[0], 100) if size else 80
            self.print("\n".join(render_short(summary, width=width, folder=self._folder)))

    def print(self, text: str) -> None:
        """Remove the panel and print text that stays on the screen."""
        self._pinned.clear(patient=True)
        lines = "\n".join(map(safe, text.split("\n")))
        self._output.write(in_encoding(f"\n{lines}\n", self._encoding))

    def restore_screen(self) -> None:
        """Remove the panel."""
        # A stream that is closed has no screen to restore.
        with contextlib.suppress(Exception):
            self._pinned.clear(patient=True)


def _rich_proxy() -> Any:
    """Return the standard output that prints above a live display of rich's; None where the program shows none."""
    return sys.stdout if hasattr(sys.stdout, "rich_proxied_file") else None


SINK = SinkKind(ConsoleOptions, ConsoleSink, default=ConsoleOptions(), close_order=CloseOrder.TERMINAL)
