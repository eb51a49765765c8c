"""The console of the timing logger: a panel pinned to the bottom of a terminal, a line per update elsewhere."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TextIO

from .._reports.name_tree import parent_name
from .._reports.panel import render_panel
from .._reports.plain import render_plain
from .._reports.text import safe
from ..sinks._terminal import SPARE_ROWS, PinnedLines
from ..sinks._text_output import TextOutput
from ..summary import Summary


class Display:
    """Shows the longest names of a run on a stream; after an error of the stream it shows nothing more.

    Without ``live`` it only prints.
    """

    def __init__(self, stream: TextIO, *, live: bool = True) -> None:
        self._stream = stream
        self._output = TextOutput(stream)
        self._encoding = getattr(stream, "encoding", None) or "ascii"
        self._pinned = PinnedLines(self._output) if live else None

    def show(self, summary: Summary, step: int) -> None:
        """Redraw the panel, or print a line if the panel does not fit."""
        most = 5
        if self._pinned is None:
            return
        try:
            size = PinnedLines.terminal_size(self._stream)
            names = {row.name for row in summary.rows}
            top = replace(summary, rows=tuple(row for row in summary.rows if parent_name(row.name, names) is None))
            if size is not None:
                panel = render_panel(
                    top, width=size[0], top=most, color=not os.environ.get("NO_COLOR"), step=step,
                    encoding=self._encoding,
                )  # fmt: skip
                if size[1] >= len(panel) + SPARE_ROWS and self._pinned.is_free():
                    self._pinned.draw(panel, size)
                    return
                self._pinned.clear()
            self._output.offer(render_plain(top, step=step, top=most, encoding=self._encoding) + "\n")
        except (OSError, ValueError):  # the stream is closed, or its reader is gone
            self.close()

    @property
    def width(self) -> int:
        """The width of a line in cells."""
        size = PinnedLines.terminal_size(self._stream)
        # Cells of a line without a terminal: enough for every text here.
        return size[0] if size is not None else 120

    def print(self, lines: list[str]) -> None:
        """Remove the panel and print lines that stay on the screen."""
        if self._pinned is not None:
            self._pinned.clear()
        with suppress(OSError, ValueError):
            self._output.write("\n" + "\n".join(safe(line, self._encoding) for line in lines) + "\n")

    def close(self) -> None:
        """Release the terminal; printed lines stay on the screen."""
        pinned, self._pinned = self._pinned, None
        if pinned is not None:
            with suppress(OSError, ValueError):
                pinned.clear(patient=True)
