"""A progress line: updated in place on a terminal, printed at intervals elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

REDRAW_S: Final = 0.2
PLAIN_LINES: Final = 10
"""Lines over a whole training where there is no terminal."""


class ProgressLine:
    """Show the steps done on ``stream`` (stderr, as tqdm does), above autoprof's own display.

    No thread redraws and no stream is replaced: only ``advance`` draws the line, so that it does not
    disturb autoprof's own display at the bottom of the terminal.
    """

    def __init__(self, steps: int, stream: TextIO | None = None) -> None:
        self._steps = steps
        self._stream = sys.stderr if stream is None else stream
        self._loss: float | None = None
        self._due = 0.0
        self._bar: Progress | None = None
        if self._stream.isatty():
            self._bar = Progress(
                TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[loss]}"),
                TimeRemainingColumn(), console=Console(file=self._stream), auto_refresh=False,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._task = self._bar.add_task("training", total=steps, loss="")

    def __enter__(self) -> ProgressLine:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None and self._bar.live.is_started:
            self._bar.refresh()
            self._bar.stop()

    def advance(self, step: int, loss: float | None) -> None:
        """Set the number of finished steps and redraw if due."""
        self._loss = self._loss if loss is None else loss
        shown = "" if self._loss is None else f"loss {self._loss:.4f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, loss=shown)
            now = time.monotonic()
            if now >= self._due or step == self._steps:
                self._due = now + REDRAW_S
                self._bar.refresh()
            if step == self._steps:  # the report follows: a later redraw would repeat the line below it
                self._stop()
        elif step == self._steps or step % max(1, self._steps // PLAIN_LINES) == 0:
            print(f"step {step}/{self._steps}  {shown}".rstrip(), file=self._stream, flush=True)
