"""The protocols of sinks, and ``RunInfo``, the facts of a run that a sink may use."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TextIO, runtime_checkable

from ..base.allowance import Allowance
from ..base.frame import StepFrame
from ..base.storage.runs import RunFolder
from ..base.summary import Summary
from ..errors import OutputError


@runtime_checkable
class Sink(Protocol):
    """An output of frames. A sink may raise: the pipeline then closes it and switches it off, and goes on."""

    def write(self, frame: StepFrame) -> None:
        """Write one step's frame. Called on the training thread: it must not wait and must not keep the frame."""

    def close(self, summary: Summary) -> None:
        """Write the statistics of the whole run and close. Called once, also after a ``write`` that raised."""


@runtime_checkable
class LiveSink(Sink, Protocol):
    """A sink that shows the statistics during the run, whenever it returns that it is due."""

    def due(self) -> bool:
        """Return True when the statistics should be shown; the next True is for the next time.

        Called about twice a second, between two steps, as long as there are frames that no ``show`` has shown.
        """

    def show(self, summary: Summary, step: int) -> None:
        """Show the statistics up to ``step``."""


@runtime_checkable
class CalibratedSink(Sink, Protocol):
    """A sink that shows single spans, and therefore needs the resolution of the clock."""

    def calibrate(self, clock_limit_ns: int) -> None:
        """Set the length below which the clock cannot resolve a span; called before the frames that it applies to."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts of a run that its sinks share.

    ``folder`` is None for a run without files. ``stream`` is for text for people. ``clock`` returns seconds, for sinks
    that are due at intervals. ``max_bytes`` limits the files of a sink that ``grows``; None is no limit. ``figures``
    pays for drawing in a sink that no configuration names; None is no limit. ``warn`` takes a note for the reports; the
    same note counts once. ``reader`` is the working directory of the people, None for the program's own.
    """

    folder: RunFolder | None
    rank: int
    stream: TextIO
    clock: Callable[[], float] = time.monotonic
    max_bytes: int | None = None
    figures: Allowance | None = None
    warn: Callable[[str], object] = str
    reader: str | None = None


def folder_of(run: RunInfo) -> RunFolder:
    """Return the folder of the run. Raises ``OutputError`` where it has none."""
    if run.folder is None:
        raise OutputError("sinks: this run has no folder, so nothing can be written; set the key output")
    return run.folder
