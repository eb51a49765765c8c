"""Calls that take the host's time inside a step: where they were made, how often, how long. Bounded, no spans."""

from __future__ import annotations

import logging
import os
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np
import torch

from ...devices import Clock, DeviceClock

SITES: Final = 256
"""Call sites kept apart; what comes beyond shares one."""
STEPS: Final = 1024
"""Steps whose sums are kept, the last ones."""
CALLS: Final = 4096
"""Calls of one step that are kept apart; what comes beyond is counted, without its place in the step."""
DEPTH: Final = 64
"""Frames looked through for one of the user's."""
_TORCH: Final = os.path.dirname(torch.__file__) + os.sep
_OURS: Final = str(Path(__file__).parents[2]) + os.sep
_LOGGING: Final = os.path.dirname(logging.__file__) + os.sep
_PROGRAMS: Final = tuple(os.path.join(_OURS, *parts, "") for parts in (("demo",), ("diagnose", "rules")))
"""Folders of autoprof that hold trainings, whose calls count like those of a user."""
_USER, _LIBRARY, _HIDDEN = range(3)
_kinds: dict[str, int] = {}
_sites: dict[tuple[int, int, str], tuple[Any, Site]] = {}


class Site(NamedTuple):
    """Where a call stands in the user's code, and what it calls."""

    file: str
    line: int
    function: str
    call: str


BEYOND: Final = Site("", 0, "", f"(beyond {SITES} sites)")


Call = tuple[Site, int, int]
"""One call: its site, its start and its end in nanoseconds of the clock's host time. (A named tuple takes 0.4 µs.)"""


def _kind(file: str) -> int:
    if file.startswith(_OURS) and not file.startswith(_PROGRAMS):
        kind = _HIDDEN
    elif file.startswith(_TORCH):
        kind = _HIDDEN if file.endswith("_tensor_str.py") else _LIBRARY
    else:
        kind = _LIBRARY if file.startswith(_LOGGING) else _USER
    if len(_kinds) < STEPS:
        _kinds[file] = kind
    return kind


def site_of(frame: FrameType | None, call: str) -> Site | None:
    """Return the innermost frame that is neither torch's nor the logging module's.

    None for what autoprof calls itself, and for what torch calls to print a tensor, which is one call already.
    """
    for _ in range(DEPTH):
        if frame is None:
            return None
        code = frame.f_code
        file = code.co_filename
        kind = _kinds.get(file)
        if kind is None:
            kind = _kind(file)
        if kind == _USER:
            key = id(code), frame.f_lasti, call
            known = _sites.get(key)
            if known is None:  # the line of an instruction takes a walk through the code's table
                known = code, Site(file, frame.f_lineno, code.co_name, call)
                if len(_sites) < STEPS:
                    _sites[key] = known  # with the code, for as long as its id stands for it
            return known[1]
        if kind == _HIDDEN:
            return None
        frame = frame.f_back
    return None


class CallTable:
    """The calls of one kind that one session saw: sums by site, and each step's. Belongs to the training thread.

    ``now`` gives the host's nanoseconds. A call is added when it is over (``add``), or watched (``watch``): then its
    end is when the callable dies that was made for it. What notes that is of C throughout, so that a Ctrl-C that came
    during the call is raised in the user's code, and not in a destructor of ours, where Python would lose it.
    """

    def __init__(self, clock: Clock) -> None:
        self.sites: dict[Site, list[int]] = {}
        self.steps: deque[tuple[int, ...]] = deque(maxlen=STEPS)
        """The sums of each step, one entry each; what they are is for the user of the table to say."""
        self.recorded_steps = 0
        self._open: list[Call] = []
        self._more: dict[Site, list[int]] = {}
        self._pending: tuple[Any, Site, int] | None = None
        self.use_clock(clock)

    def use_clock(self, clock: Clock) -> None:
        """Read another clock from now on."""
        self.now: Callable[[], int] = clock.now if isinstance(clock, DeviceClock) else clock.read
        self._ends: defaultdict[Any, int] = defaultdict(self.now)
        self._ended = self._ends.__missing__
        self._pending = None

    def watch(self, call: Any, site: Site) -> None:
        """Time a call from now on until ``call``, a callable made for it alone, is dropped."""
        if self._pending is not None:
            self._settle()
        link = ref(call, self._ended)
        hash(link)  # once dead it could not be hashed any more
        self._pending = (link, site, self.now())

    def add(self, site: Site, start_ns: int, end_ns: int) -> None:
        """Take a call that is over."""
        if len(self._open) < CALLS:
            self._open.append((site, start_ns, end_ns))
        else:
            _add(self._more, site, 1, end_ns - start_ns)

    def _settle(self) -> None:
        assert self._pending is not None
        (link, site, start_ns), self._pending = self._pending, None
        end_ns = self._ends.pop(link, start_ns)  # still alive: somebody keeps the bound method, its end says nothing
        self._ends.clear()
        self.add(site, start_ns, end_ns)

    def take(self) -> list[Call]:
        """Return the calls since the last ``take``, in order; ``count`` counts them, or nobody does."""
        if self._pending is not None:
            self._settle()
        calls = self._open
        if calls:
            self._open = []
        return calls

    def drop(self) -> None:
        """Forget what was called since the last step was counted."""
        self.take()
        self._more.clear()

    def count(self, calls: list[Call]) -> int:
        """Add a recorded step's calls to the sums by site; return their nanoseconds."""
        whole = 0
        for site, start_ns, end_ns in calls:
            _add(self.sites, site, 1, end_ns - start_ns)
            whole += end_ns - start_ns
        if self._more:
            more, self._more = self._more, {}
            for site, (count, ns) in more.items():
                _add(self.sites, site, count, ns)
                whole += ns
        return whole

    def close_step(self, *sums: int) -> None:
        """Keep a recorded step's sums."""
        self.recorded_steps += 1
        self.steps.append(sums)

    def column(self, at: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return one of the sums of the steps that are kept."""
        return np.array([sums[at] for sums in self.steps], dtype=np.int64)


def _add(sums: dict[Site, list[int]], site: Site, count: int, ns: int) -> None:
    kept = sums.get(site)
    if kept is None:
        kept = sums.setdefault(site if len(sums) < SITES else BEYOND, [0, 0])
    kept[0] += count
    kept[1] += ns
