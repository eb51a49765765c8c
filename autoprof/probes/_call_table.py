"""Calls that take host time inside a step: their call sites, counts and durations. Bounded; they are no spans."""

from __future__ import annotations

import os
import sysconfig
from collections import defaultdict, deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np
import torch

from ..capture.recorder import Recorder
from ..devices import Clock
from ._libraries import is_installed

MAX_SITES: Final = 256
"""Call sites with figures of their own; further ones share one entry."""
MAX_STEPS: Final = 1024
"""Steps whose sums are kept, the last ones."""
MAX_FRAMES: Final = 64
"""Frames searched for one of the user's code."""
_TORCH: Final = os.path.dirname(torch.__file__) + os.sep
_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_PROGRAMS: Final = os.path.join(_OURS, "demo", "")
"""The folder of autoprof that holds trainings, whose calls count like those of a user."""
_PATHS = sysconfig.get_paths()
_STANDARD: Final = tuple({os.path.join(_PATHS[name], "") for name in ("stdlib", "platstdlib")})


class Site(NamedTuple):
    """A call site: a line of the user's code, and the name of the function called."""

    file: str
    line: int
    function: str
    call: str


OTHER_SITES: Final = Site("", 0, "", f"(beyond {MAX_SITES} sites)")


TimedCall = tuple[Site, int, int]
"""One call: its site, its start and end in nanoseconds of host time. (A named tuple would take 0.4 µs.)"""


@lru_cache(1024)
def file_owner(file: str) -> str:
    """Return whose file it is: ``autoprof``, ``base`` (torch, Python itself), ``library`` (installed), or ``user``."""
    if file.startswith(_OURS) and not file.startswith(_PROGRAMS):
        return "autoprof"
    if file.startswith((_TORCH, "<frozen ")):
        return "base"
    if is_installed(file):  # maybe inside the folder of the standard library
        return "library"
    return "base" if file.startswith(_STANDARD) else "user"


def site_of(frame: FrameType | None, call: str) -> Site | None:
    """Return the site of the innermost frame that belongs neither to torch nor to the standard library.

    None for calls by autoprof, and for calls by which torch prints a tensor, as printing is one call already.
    """
    for _ in range(MAX_FRAMES):
        if frame is None:
            return None
        code = frame.f_code
        file = code.co_filename
        owner = file_owner(file)
        if owner == "autoprof" or file.endswith("_tensor_str.py"):
            return None
        if owner != "base":
            return Site(file, frame.f_lineno, code.co_name, call)
        frame = frame.f_back
    return None


class CallTable:
    """The calls of one kind that one session saw: sums by site, and sums of each step. For the training thread only.

    A call is added when it is over (``add``), or watched (``watch``): then it ends when the callable that was made for
    it is freed. That end is recorded by C code only, so that a Ctrl-C during the call is raised in the user's code and
    not in a destructor of ours, where Python would lose it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.sites: dict[Site, list[int]] = {}
        self.steps: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=MAX_STEPS)
        """The number and the sums of each step with calls; the meaning of the sums is up to the user of the table."""
        self.open: list[TimedCall] = []
        """The calls since the last ``take``; further ones are summed by site."""
        self._more: dict[Site, list[int]] = {}
        self.pending: list[tuple[Any, Site, int]] = []
        """The call that is watched, if any."""
        self._recorder = recorder
        self._clock: Clock | None = None
        recorder.on_change(self._use_clock)
        self._use_clock()

    def _use_clock(self) -> None:
        """Read the recorder's clock from now on; the calls that another one has timed are forgotten."""
        clock = self._recorder.clock
        if clock is self._clock:
            return
        self._clock = clock
        self.drop()
        self.now: Callable[[], int] = clock.now
        """Returns the host time in nanoseconds."""
        self._ends: defaultdict[Any, int] = defaultdict(self.now)
        self._ended = self._ends.__missing__

    def watch(self, call: Any, site: Site) -> None:
        """Time a call from now on until ``call``, a callable made for this call only, is freed."""
        if self.pending:
            self._add_watched()
        link = ref(call, self._ended)
        hash(link)  # kept by the reference: a dead one cannot be hashed any more
        self.pending.append((link, site, self.now()))

    def add(self, site: Site, start_ns: int, end_ns: int) -> None:
        if len(self.open) < 4096:
            self.open.append((site, start_ns, end_ns))
        else:
            _add(self._more, site, 1, end_ns - start_ns)

    def _add_watched(self) -> None:
        link, site, start_ns = self.pending.pop()
        end_ns = self._ends.pop(link, start_ns)  # still alive: the user keeps the bound method, so the end is unknown
        self._ends.clear()
        self.add(site, start_ns, end_ns)

    def take(self) -> list[TimedCall]:
        """Return the calls since the last ``take``, in order; pass them to ``count`` to count them."""
        if self.pending:
            self._add_watched()
        calls = self.open
        if calls:
            self.open = []
        return calls

    def drop(self) -> None:
        """Forget the calls since the last step was counted."""
        self.take()
        self._more.clear()

    def count(self, calls: list[TimedCall]) -> int:
        """Add a recorded step's calls to the sums by site; return their nanoseconds."""
        total_ns = 0
        for site, start_ns, end_ns in calls:
            _add(self.sites, site, 1, end_ns - start_ns)
            total_ns += end_ns - start_ns
        if self._more:
            more, self._more = self._more, {}
            for site, (count, ns) in more.items():
                _add(self.sites, site, count, ns)
                total_ns += ns
        return total_ns

    def close_step(self, number: int, *sums: int) -> None:
        """Keep the sums of a recorded step, given its number among the recorded ones, from 1 on."""
        self.steps.append((number, sums))

    def column(self, at: int, recorded: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return one of the sums for each of the last ``MAX_STEPS`` recorded steps; 0 for those without calls."""
        first = max(recorded - MAX_STEPS, 0)
        values = np.zeros(recorded - first, dtype=np.int64)
        for number, sums in self.steps:
            if first < number <= recorded:
                values[number - first - 1] = sums[at]
        return values


def _add(sums: dict[Site, list[int]], site: Site, count: int, ns: int) -> None:
    kept = sums.get(site)
    if kept is None:
        kept = sums.setdefault(site if len(sums) < MAX_SITES else OTHER_SITES, [0, 0])
    kept[0] += count
    kept[1] += ns
