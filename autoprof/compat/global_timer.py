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

from .._capture.hooks.function import span
from .._core.names import clean_name
from .._core.signals import raised_by_handler
from .._core.units import NS_PER_MS, NS_PER_S
from .._process.ranks import rank as rank_here
from ..devices import Clock, HostClock, ask_devices
from ..errors import OutputError

MAX_INTERVALS: Final = 262_144
"""Intervals kept between two dumps. Of more the oldest are dropped; the next dump warns with their number."""

logger = logging.getLogger("autoprof")
_compiling = torch.compiler.is_dynamo_compiling


class _Open(NamedTuple):
    """An open interval: the clock of its start, the reading, and the span in an open session."""

    clock: Clock
    reading: Any
    start_unix_ns: int
    span: span


class _Closed(NamedTuple):
    """A closed interval. The device may not have passed its end yet."""

    name: str
    clock: Clock
    readings: tuple[Any, Any]
    start_unix_ns: int

    def line(self, rank: int) -> str:
        """Return the documented line; ``cuda_dur`` is ``nan`` if no device time was measured."""
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
    thread has its own intervals. In an open autoprof session they are recorded as spans too.
    """

    def __init__(self, log_dir: str | os.PathLike[str] = "time_log", *, clock: Clock | None = None) -> None:
        self._folder = Path(log_dir)
        self._clock = clock
        self._may_switch_clock = clock is None
        self._owner = os.getpid()
        self._open = threading.local()
        self._closed: deque[_Closed] = deque()
        self._lock = threading.Lock()
        self._unmatched_stops = 0
        self._dropped = 0

    def start(self, name: str) -> None:
        """Start an interval."""
        if _compiling():
            return
        try:
            if os.getpid() != self._owner:
                self._reset_after_fork()
            clock, inner = self._current_clock(), span(name)
            stack = self._stacks().setdefault(name, [])
            # Open intervals of one name in a thread. Of more the oldest is dropped.
            if len(stack) >= 1024:  # started repeatedly, never stopped
                self._dropped += 1
                clock.release((stack.pop(0).reading,))
            inner.__enter__()
            stack.append(_Open(clock, clock.read(), time.time_ns(), inner))
        except Exception as error:
            self._warn(error)

    def stop(self, name: str) -> None:
        """End the innermost open interval of this name in this thread; without one the next dump warns."""
        if _compiling():
            return
        try:
            if os.getpid() != self._owner:
                self._reset_after_fork()
            stack = self._stacks().get(name)
            if not stack:
                self._unmatched_stops += 1
                return
            interval = stack.pop()
            reading = interval.clock.read()
            interval.span.__exit__(None, None, None)
            closed = _Closed(clean_name(str(name)), interval.clock, (interval.reading, reading), interval.start_unix_ns)
            with self._lock:
                self._closed.append(closed)
                if len(self._closed) > MAX_INTERVALS:
                    oldest = self._closed.popleft()
                    oldest.clock.release(oldest.readings)
                    self._dropped += 1
        except Exception as error:
            self._warn(error)

    def dump(self) -> Path:
        """Append the intervals closed since the last dump to this rank's log; return the log. Waits for the device.

        Open intervals are written by the dump after their stop. Raises ``OutputError`` if the log cannot be written;
        the intervals are kept for the next dump.
        """
        if os.getpid() != self._owner:
            self._reset_after_fork()
        rank = rank_here()
        path = self._folder / f"timer_rank{rank}.log"
        with self._lock:
            closed, self._closed = self._closed, deque()
            unmatched, self._unmatched_stops = self._unmatched_stops, 0
            dropped, self._dropped = self._dropped, 0
        try:
            for one in closed:
                one.clock.wait(one.readings)
            self._append(
                path,
                f"\n{'=' * 32} DUMP START  {'=' * 32}\n" + "".join(one.line(rank) for one in closed) if closed else "",
            )
        except BaseException as error:
            with self._lock:
                closed.extend(self._closed)
                self._closed = closed
                self._unmatched_stops += unmatched
                self._dropped += dropped
            if isinstance(error, OSError):
                reason = f"cannot be written ({error.strerror}); log_dir must be a writable folder"
                raise OutputError(f"{path}: {reason}") from error
            raise
        for one in closed:
            one.clock.release(one.readings)
        if unmatched:
            logger.warning(f"global_timer: {unmatched} calls of stop without a start of that name in that thread")
        if dropped:
            why = f"never stopped, or more than {MAX_INTERVALS:,} between two dumps"
            logger.warning(f"global_timer: {dropped} intervals dropped: {why}")
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

    def _reset_after_fork(self) -> None:
        """Forget the intervals of the parent of this forked process: the parent writes them."""
        self._owner = os.getpid()
        self._open, self._closed, self._lock = threading.local(), deque(), threading.Lock()
        self._unmatched_stops = self._dropped = 0
        if self._clock is not None and self._clock.device_type is not None:
            self._clock, self._may_switch_clock = HostClock(), False  # a device's events do not survive a fork

    def _stacks(self) -> dict[str, list[_Open]]:
        stacks: dict[str, list[_Open]] | None = getattr(self._open, "stacks", None)
        if stacks is None:
            stacks = self._open.stacks = {}
        return stacks

    def _current_clock(self) -> Clock:
        """Return the clock to read: the host's until this process uses a device, then the device's."""
        if self._clock is None:
            self._clock = HostClock()
        used = None
        if self._may_switch_clock:
            used = next((device for device, in_use in ask_devices(lambda one: one.in_use()) if in_use), None)
        if used is not None:
            self._clock, _ = used.clock(torch.device(used.types[0]))
            self._may_switch_clock = False
        return self._clock

    def _warn(self, error: Exception) -> None:
        if raised_by_handler(error):
            raise error
        logger.warning(f"global_timer: {type(error).__name__}: {error}")


_timer = MyTimer()


def start(name: str) -> None:
    """Start an interval of the process's timer."""
    _timer.start(name)


def stop(name: str) -> None:
    """End an interval of the process's timer."""
    _timer.stop(name)


def dump() -> Path:
    """Append the intervals closed since the last dump to ``time_log/timer_rank{N}.log``; return the log."""
    return _timer.dump()
