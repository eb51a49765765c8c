"""The seam where frames leave the straight line: ``Sink``, and ``RunInfo``, what a sink may know of the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TextIO, runtime_checkable

from .._storage.runs import RunFolder
from ..errors import OutputError
from ..frame import StepFrame
from ..summary import Summary


@runtime_checkable
class Sink(Protocol):
    """Where frames go. A sink may raise: whoever calls it counts that and switches this one sink off."""

    def write(self, frame: StepFrame) -> None:
        """Take one step's frame. Called on the training thread, so it must not wait and must not keep the frame."""

    def close(self, summary: Summary) -> None:
        """Finish with the statistics of the whole run. Called once, also after a ``write`` that raised."""


@runtime_checkable
class LiveSink(Sink, Protocol):
    """A sink that shows the statistics while the run goes on: it says when, and is given them."""

    def due(self, idle_s: float | None = None) -> bool:
        """Return True, once each time, when the statistics are to be shown.

        Asked after each frame, and with ``idle_s`` before a gap: no frame will come for about that many seconds.
        """

    def show(self, summary: Summary, step: int) -> None:
        """Show the statistics up to ``step``. They are computed in parts, so a few short steps may lie between."""


@runtime_checkable
class CalibratedSink(Sink, Protocol):
    """A sink that shows single spans, and therefore asks for the limit of the clock."""

    def calibrate(self, clock_limit_ns: int) -> None:
        """Take the length below which a span cannot be told from none; called before the frames it is true of."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts of a run that its sinks share.

    ``folder`` is None for a run without files. ``stream`` is where text for people goes. ``clock`` gives seconds, and
    decides when a sink is due again.
    """

    folder: RunFolder | None
    rank: int
    stream: TextIO
    clock: Callable[[], float] = time.monotonic


def folder_of(run: RunInfo) -> RunFolder:
    """Return the folder of a run that has one; a sink that writes files is made for no other."""
    if run.folder is None:
        raise OutputError("sinks: this run has no folder, so nothing can be written; name one as output")
    return run.folder
