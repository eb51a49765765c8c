"""``global_timer``: named intervals on the host and on the device, one log a rank.

from autoprof.compat import global_timer
global_timer.start("forward")
…
global_timer.stop("forward")
global_timer.dump()                       # time_log/timer_rank{N}.log

``autoprof.compat.timer_logs`` reads these logs, draws a timeline and finds the slow rank.
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

from ..base.failures import contain, describe
from ..base.names import clean_name
from ..base.process.ranks import rank as rank_here
from ..base.storage.line_file import AppendFile
from ..base.units import NS_PER_MS, NS_PER_S
from ..capture.hooks.function import span
from ..devices import Clock, HostClock, ask_devices
from ..errors import OutputError

MAX_INTERVALS: Final = 262_144
"""Intervals kept between two dumps. Of more the oldest are dropped; the next dump warns with their number."""

logger = logging.getLogger("autoprof")
_compiling = torch.compiler.is_dynamo_compiling


class _Interval(NamedTuple):
    """An interval with its clock's readings, of which the last is None while it is open."""

    name: str
    clock: Clock
    start_unix_ns: int
    span: span
    """The interval in an open session."""
    begun: Any
    ended: Any = None

    def line(self, rank: int) -> str:
        """Return the documented line of a closed interval; ``cuda_dur`` is ``nan`` without a device time.

        Waits for the device.
        """
        readings = (self.begun, self.ended)
        self.clock.wait(readings)
        host_s = (self.clock.host_ns(self.ended) - self.clock.host_ns(self.begun)) / NS_PER_S
        device = self.clock.times(readings).device
        is_measured = device is not None and (device.place is None or device.place[0] == device.place[1] >= 0)
        device_ms = int(device.ns[1] - device.ns[0]) / NS_PER_MS if device is not None and is_measured else math.nan
        start_s = self.start_unix_ns / NS_PER_S
        return (
            f"[RANK {rank}] {self.name}, start={start_s:.6f}, end={start_s + host_s:.6f}, "
            f"cpu_dur={host_s:.6f}s, cuda_dur={device_ms:.3f}ms\n"
        )


class MyTimer:
    """Time named intervals, nested and in threads, and write them to one log a rank.

    ``start`` and ``stop`` read the host's clock and, once the process uses a device, record an event on the current
    stream; they never wait and never raise. ``dump`` waits for the device. Intervals of one name may nest; each
    thread has its own intervals. In an open autoprof session they are recorded as spans too.
    """

    def __init__(self, log_dir: str | os.PathLike[str] = "time_log", *, clock: Clock | None = None) -> None:
        self._folder = Path(log_dir)
        self._clock = clock or HostClock()
        self._may_switch_clock = clock is None
        self._forget()

    def _forget(self) -> None:
        """Forget all intervals: those before a fork are written by the parent."""
        self._owner = os.getpid()
        self._open = threading.local()
        self._closed: deque[_Interval] = deque()
        self._lock = threading.Lock()
        self._unmatched_stops = self._dropped = 0

    def _stack(self, name: str) -> deque[_Interval]:
        """Return the open intervals of a name in this thread."""
        if os.getpid() != self._owner:
            self._forget()
            if self._clock.device_type is not None:  # a device's events do not survive a fork
                self._clock, self._may_switch_clock = HostClock(), False
        stack: deque[_Interval] = self._open.__dict__.setdefault(name, deque(maxlen=1024))  # some never stop
        return stack

    def start(self, name: str) -> None:
        """Start an interval."""
        if _compiling():
            return
        with contain(self._warn):
            stack, clock, inner = self._stack(name), self._current_clock(), span(name)
            inner.__enter__()
            stack.append(_Interval(clean_name(str(name)), clock, time.time_ns(), inner, clock.read()))

    def stop(self, name: str) -> None:
        """End the innermost open interval of this name in this thread; without one the next dump warns."""
        if _compiling():
            return
        with contain(self._warn):
            stack = self._stack(name)
            if not stack:
                self._unmatched_stops += 1
                return
            interval = stack.pop()
            ended = interval.clock.read()
            interval.span.__exit__(None, None, None)
            with self._lock:
                self._closed.append(interval._replace(ended=ended))
                if len(self._closed) > MAX_INTERVALS:
                    self._closed.popleft()
                    self._dropped += 1

    def dump(self) -> Path:
        """Append the intervals closed since the last dump to this rank's log; return the log. Waits for the device.

        Open intervals are written by the dump after their stop. Raises ``OutputError`` if the log cannot be written;
        the intervals are kept for the next dump.
        """
        self._stack("")
        rank = rank_here()
        path = self._folder.absolute() / f"timer_rank{rank}.log"
        with self._lock:
            closed, self._closed = self._closed, deque()
        try:
            text = "".join(one.line(rank) for one in closed)
            if text:
                path.parent.mkdir(parents=True, exist_ok=True)
                log = AppendFile(path)
                log.append(f"\n{'=' * 32} DUMP START  {'=' * 32}\n{text}".encode("utf-8", "replace"))
                log.close()
        except BaseException as error:
            with self._lock:
                self._closed.extendleft(reversed(closed))
            if isinstance(error, OSError):
                reason = f"cannot be written ({error.strerror}); log_dir must be a writable folder"
                raise OutputError(f"{path}: {reason}") from error
            raise
        for one in closed:
            one.clock.release((one.begun, one.ended))
        if self._unmatched_stops:
            wrong = f"{self._unmatched_stops} calls of stop without a start of that name in that thread"
            logger.warning(f"global_timer: {wrong}")
        if self._dropped:
            limit = f"more than {MAX_INTERVALS:,} between two dumps"
            logger.warning(f"global_timer: {self._dropped} intervals dropped: {limit}")
        self._unmatched_stops = self._dropped = 0
        return path

    def _current_clock(self) -> Clock:
        """Return the clock to read: the host's until this process uses a device, then the device's."""
        if self._may_switch_clock:
            used = next((device for device, in_use in ask_devices(lambda one: one.in_use()) if in_use), None)
            if used is not None:
                self._clock, _ = used.clock(torch.device(used.types[0]))
                self._may_switch_clock = False
        return self._clock

    def _warn(self, error: Exception) -> None:
        logger.warning(f"global_timer: {describe(error)}")


_timer = MyTimer()
"""The process's timer, whose methods are functions of this module."""
start = _timer.start
stop = _timer.stop
dump = _timer.dump
