"""Time the calls of functions inside a step by call site: the replacements report to the probes that record now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from threading import get_ident
from typing import Any

from .._capture.recorder import Recorder
from .._process.replace import Make, Replacement, never_compile
from ._call_table import CallTable, site_of

_caller = sys._getframe


class TimedCallProbe:
    """Record the calls of some functions in one session's sampled steps in a table. A ``Probe``.

    ``listeners`` are the probes of this kind that record now; ``find`` returns the replacements of the functions.
    """

    def __init__(
        self, recorder: Recorder, listeners: list[Any], find: Callable[[], Iterable[Replacement]], what: str
    ) -> None:
        self.table = CallTable(recorder.clock)
        self.thread = recorder.thread
        self.inside = False
        """Whether such a call is open: calls inside it belong to it."""
        self._listeners = listeners
        self._find = find
        self._what = what
        self._recorder = recorder
        self._clock = recorder.clock
        self._held: tuple[Replacement, ...] = ()
        recorder.on_change(self._update)

    def _update(self) -> None:
        self.thread = self._recorder.thread
        if self._recorder.clock is not self._clock:
            self._clock = self._recorder.clock
            self.table.drop()
            self.table.use_clock(self._clock)

    def attach(self) -> None:
        """Record calls from now on."""
        if not self._held:
            self._held = tuple(self._find())
            for replacement in self._held:
                replacement.hold(self)
        if self not in self._listeners:
            self._listeners.append(self)

    def detach(self) -> None:
        """Record no more; the replacements stay until ``remove``."""
        self.inside = False
        if self in self._listeners:
            self._listeners.remove(self)

    def remove(self) -> None:
        """Put the originals back once no session needs the replacements."""
        self.detach()
        for replacement in self._held:
            replacement.release(self)
        self._held = ()

    def count_failure(self) -> None:
        """Count a failure of ours."""
        self._recorder.handle_failure(self._what)


def time_calls(name: str) -> Make:
    """Return the maker of a replacement that reports each call under this name."""

    def make(original: Any, listeners: list[Any]) -> Any:
        @wraps(original)
        def timed_call(*args: Any, **kwargs: Any) -> Any:
            begun = _begin(listeners) if listeners else None
            if not begun:
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                _end(begun, name, _caller(1))

        never_compile(timed_call)
        return timed_call

    return make


def _begin(listeners: list[TimedCallProbe]) -> list[tuple[TimedCallProbe, int]]:
    """Return the probes that record a call beginning here, outside any other, each with the time."""
    thread, begun = get_ident(), []
    for probe in listeners:
        if thread == probe.thread and not probe.inside:
            probe.inside = True
            begun.append((probe, probe.table.now()))
    return begun


def _end(begun: list[tuple[TimedCallProbe, int]], name: str, frame: Any) -> None:
    site = site_of(frame, name)
    for probe, start_ns in begun:
        probe.inside = False
        try:
            if site is not None:
                probe.table.add(site, start_ns, probe.table.now())
        except Exception:
            probe.count_failure()


for _function in (_begin, _end):
    never_compile(_function)
