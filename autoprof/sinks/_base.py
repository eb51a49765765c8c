"""The seam where frames leave the straight line: ``Sink``, and ``RunInfo``, what a sink may know of the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
class Display(Sink, Protocol):
    """A sink that somebody watches: it is told when no frame will come for a while."""

    def rest(self, seconds: float) -> bool:
        """Take word that steps are left alone for about this long, and show what there is to show.

        Return False to be asked again at the end of the next step, so that no step pays for all of it.
        """


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What the sinks of one run share.

    ``folder`` is None for a run without files. ``summary`` computes the statistics so far when it is called, so a
    sink calls it only when it is about to show them. ``refined`` does the same in parts, one at each step where steps
    are short. ``clock`` gives seconds and decides when a sink is due again.
    ``clock_limit_ns`` says what length of a span the run's own clock cannot tell from none (so far: 0).
    """

    folder: RunFolder | None
    rank: int
    summary: Callable[[], Summary]
    stream: TextIO
    clock: Callable[[], float] = time.monotonic
    clock_limit_ns: Callable[[], int] = lambda: 0
    parts: Callable[[], Iterator[Summary]] | None = None

    def refined(self) -> Iterator[Summary]:
        """Yield the statistics so far again and again, each time with more in them; the last is the whole."""
        return iter((self.summary(),)) if self.parts is None else self.parts()


def folder_of(run: RunInfo) -> RunFolder:
    """Return the folder of a run that has one; a sink that writes files is made for no other."""
    if run.folder is None:
        raise OutputError("sinks: this run has no folder, so nothing can be written; name one as output")
    return run.folder
