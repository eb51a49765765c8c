"""``global_timer``: named intervals on the host and on the device, one log a rank.

from autoprof.compat import global_timer
global_timer.start("forward")
…
global_timer.stop("forward")
global_timer.dump()                       # time_log/timer_rank{N}.log

``autoprof.compat.timer_logs`` reads these logs, draws them as a timeline and finds the rank that is slow.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from .._capture.probes import span
from .._names import clean_name
from .._process.signals import raised_by_handler
from .._session.outputs import rank as rank_here
from .._units import NS_PER_MS, NS_PER_S
from ..devices import DEVICES, Clock, HostClock
from ..errors import OutputError

FOLDER: Final = "time_log"
BANNER: Final = f"\n{'=' * 32} DUMP START  {'=' * 32}\n"
KEPT: Final = 262_144
"""Intervals kept between two dumps; the oldest give way, and the next dump says how many did."""
DEEPEST: Final = 1024
"""Intervals of one name open at once in a thread; beyond it the oldest gives way, counted as lost."""

logger = logging.getLogger("autoprof")
_compiling = torch.compiler.is_dynamo_compiling


class _Open(NamedTuple):
    """An interval that has begun: the clock it began on, its reading, and the span in the open session."""

    clock: Clock
    reading: Any
    start_unix_ns: int
    span: span


class _Closed(NamedTuple):
    """An interval that is over. Its device may not have come that far."""

    name: str
    clock: Clock
    readings: tuple[Any, Any]
    start_unix_ns: int

    def line(self, rank: int) -> str:
        """Return the documented line; a time that the device's clock does not know is not a number."""
        begun, ended = (self.clock.host_ns(reading) for reading in self.readings)
        device_ns = self._device_ns()
        device_ms = math.nan if device_ns is None else device_ns / NS_PER_MS
        start_s, host_s = self.start_unix_ns / NS_PER_S, (ended - begun) / NS_PER_S
        return (
            f"[RANK {rank}] {self.name}, start={start_s:.6f}, end={start_s + host_s:.6f}, "
            f"cpu_dur={host_s:.6f}s, cuda_dur={device_ms:.3f}ms\n"
        )

    def _device_ns(self) -> int | None:
        device = self.clock.times(self.readings).device
        if device is None or (device.place is not None and (device.place[0] != device.place[1] or device.place[0] < 0)):
            return None
        return int(device.ns[1] - device.ns[0])


class MyTimer:
    """Time named intervals, nested and in threads, and write them to one log a rank.

    ``start`` and ``stop`` read the host's clock and, once the process uses a device, record an event on the current
    stream; they never wait and never raise. ``dump`` waits for the device. Intervals of one name may nest; each
    thread has its own. In an open autoprof session they are spans of the user's as well.
    """

    def __init__(self, log_dir: str | os.PathLike[str] = FOLDER, *, clock: Clock | None = None) -> None:
        self._folder = Path(log_dir)
        self._clock = clock
        self._follow = clock is None
        self._owner = os.getpid()
        self._open = threading.local()
        self._closed: deque[_Closed] = deque()
        self._lock = threading.Lock()
        self._unmatched = 0
        self._lost = 0

    def start(self, name: str) -> None:
        """Begin an interval."""
        if _compiling():
            return
        try:
            if os.getpid() != self._owner:
                self._begin_anew()
            clock, inner = self._here(), span(name)
            begun = self._stacks().setdefault(name, [])
            if len(begun) >= DEEPEST:  # started again and again, never stopped
                self._lost += 1
                clock.release((begun.pop(0).reading,))
            inner.__enter__()
            begun.append(_Open(clock, clock.read(), time.time_ns(), inner))
        except Exception as error:
            self._say(error)

    def stop(self, name: str) -> None:
        """End the interval of this name that this thread began last; without one, that is counted and said."""
        if _compiling():
            return
        try:
            if os.getpid() != self._owner:
                self._begin_anew()
            begun = self._stacks().get(name)
            if not begun:
                self._unmatched += 1
                return
            interval = begun.pop()
            reading = interval.clock.read()
            interval.span.__exit__(None, None, None)
            closed = _Closed(clean_name(str(name)), interval.clock, (interval.reading, reading), interval.start_unix_ns)
            with self._lock:
                self._closed.append(closed)
                if len(self._closed) > KEPT:
                    lost = self._closed.popleft()
                    lost.clock.release(lost.readings)
                    self._lost += 1
        except Exception as error:
            self._say(error)

    def dump(self) -> Path:
        """Append what ended since the last dump to this rank's log and return the log. Waits for the device.

        Intervals that are still open stay for the next dump. Raises ``OutputError`` where nothing can be written; then
        nothing is lost.
        """
        if os.getpid() != self._owner:
            self._begin_anew()
        rank = rank_here()
        path = self._folder / f"timer_rank{rank}.log"
        with self._lock:
            closed, self._closed = self._closed, deque()
            unmatched, self._unmatched = self._unmatched, 0
            lost, self._lost = self._lost, 0
        try:
            for one in closed:
                one.clock.wait(one.readings)
            self._append(path, BANNER + "".join(one.line(rank) for one in closed) if closed else "")
        except BaseException as error:
            with self._lock:
                closed.extend(self._closed)
                self._closed, self._unmatched, self._lost = closed, self._unmatched + unmatched, self._lost + lost
            if isinstance(error, OSError):
                raise OutputError(
                    f"{path}: cannot be written ({error.strerror}); log_dir must be a folder that this user may write "
                    "to"
                ) from error
            raise
        for one in closed:
            one.clock.release(one.readings)
        if unmatched:
            logger.warning(f"global_timer: {unmatched} x stop without a start of that name on that thread")
        if lost:
            why = f"never stopped, or more than {KEPT:,} between two dumps"
            logger.warning(f"global_timer: {lost} intervals are lost: {why}")
        return path.absolute()

    def _append(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            data, written = memoryview(text.encode("utf-8", "replace")), 0
            while written < len(data):
                written += os.write(file, data[written:])
        finally:
            os.close(file)

    def _begin_anew(self) -> None:
        """Forget what the parent of this forked process recorded: it writes that itself."""
        self._owner = os.getpid()
        self._open, self._closed, self._lock = threading.local(), deque(), threading.Lock()
        self._unmatched = self._lost = 0
        if self._clock is not None and self._clock.device_type is not None:
            self._clock, self._follow = HostClock(), False  # a device's events do not survive a fork

    def _stacks(self) -> dict[str, list[_Open]]:
        stacks: dict[str, list[_Open]] | None = getattr(self._open, "stacks", None)
        if stacks is None:
            stacks = self._open.stacks = {}
        return stacks

    def _here(self) -> Clock:
        """Return the clock to read: the host's, until this process has begun to use a device."""
        if self._clock is None:
            self._clock = HostClock()
        used = next((one for one in DEVICES.parts.values() if one.in_use()), None) if self._follow else None
        if used is not None:
            self._clock, _ = used.clock(torch.device(used.types[0]))
            self._follow = False
        return self._clock

    def _say(self, error: Exception) -> None:
        if raised_by_handler(error):
            raise error
        logger.warning(f"global_timer: {type(error).__name__}: {error}")


_timer = MyTimer()


def start(name: str) -> None:
    """Begin an interval of the process's own timer."""
    _timer.start(name)


def stop(name: str) -> None:
    """End it."""
    _timer.stop(name)


def dump() -> Path:
    """Append what ended since the last dump to ``time_log/timer_rank{N}.log`` and return the log."""
    return _timer.dump()
