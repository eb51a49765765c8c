"""The allocator's snapshot, of a window of steps or when memory runs out: ``memory_snapshot_rank0.pickle``.

The file has the format of ``torch.cuda.memory._dump_snapshot``, for pytorch.org/memory_viz; the oldest part of the
history is left out where it exceeds the size limit.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .._core.failures import contain, describe
from .._core.units import format_bytes
from .._storage.atomic import write_atomic
from ..devices import AllocatorHistory, find_allocator_history
from ..errors import OutputError

if TYPE_CHECKING:
    from ..config import MemorySnapshot

MAX_BYTES: Final = 256 * 2**20
"""The largest size of a file: pytorch.org/memory_viz loads it into a browser."""


class AllocatorRecording:
    """A recording of the allocator for a snapshot. One that the user has started goes on."""

    def __init__(self, history: AllocatorHistory | None = None) -> None:
        found = find_allocator_history() if history is None else history
        self.history = found if found is not None and found.available() else None
        """The allocator's history; None without a CUDA device."""
        self._started = False

    def start(self) -> None:
        """Record from now on."""
        if self.history is not None and not self.history.recording():
            self.history.start(entries=100_000, stacks="python")
            self._started = True

    def write(self, path: Path) -> None:
        """Write a snapshot. Raises ``OutputError`` where it is too large even without its history."""
        if self.history is None:
            return
        content = bounded(self.history.snapshot())
        if content is None:
            raise OutputError(f"{path.name} is not written: without any history it exceeds {format_bytes(MAX_BYTES)}")
        write_atomic(path, content)

    def stop(self) -> None:
        """Stop the recording that ``start`` began."""
        if self.history is not None and self._started:
            self._started = False
            self.history.stop()


class SnapshotWindow:
    """Record the allocator for a window of steps and write its snapshot; or write one when memory has run out.

    Raises nothing.
    """

    def __init__(
        self,
        wanted: MemorySnapshot,
        folder: Path,
        rank: int,
        warn: Callable[[str], None],
        history: AllocatorHistory | None = None,
    ) -> None:
        self._wanted = wanted
        self._stem = folder / f"memory_snapshot_rank{rank}"
        self._warn = warn
        self._recording = AllocatorRecording(history)
        self._ended = 0
        self._in_window = False
        self._closed = False
        self._ooms = 0
        self._process = os.getpid()

    def begin(self) -> None:
        """Start the recordings that begin with the first step."""
        if self._recording.history is None:
            self._warn("memory_snapshot: there is no CUDA device, so no snapshot is written")
            self._closed = True
            return
        if self._wanted.oom:
            _open_windows.append(self)
            self._recording.history.on_oom(_memory_ran_out)
        self.step_begins(1)

    def step_begins(self, step: int) -> None:
        """Follow the begin of a step; calls for unsampled steps are not needed."""
        first = self._wanted.first
        if self._closed or first is None:
            return
        self._ended = step - 1
        with contain(self._fail):
            if self._in_window and step >= first + self._wanted.window:
                self._write_window(first)
            elif step == first:
                self._in_window = True
                self._recording.start()

    def close(self) -> None:
        """Write the snapshot of an unfinished window, and stop recording."""
        if self in _open_windows:
            _open_windows.remove(self)
        if self._closed or os.getpid() != self._process:
            return
        with contain(self._fail):
            if self._in_window:
                self._write_window(self._wanted.first or 1)
        self._closed = True

    def _write_window(self, first: int) -> None:
        self._in_window = False
        path = self._stem.with_suffix(".pickle")
        self._recording.write(path)
        steps = f"steps {first} to {self._ended}" if self._ended > first else f"step {first}"
        self._warn(f"{path.name} has the allocations of {steps}; their times include the cost of recording")
        self._recording.stop()

    def memory_ran_out(self) -> None:
        """Write the allocator's blocks; torch raises its exception afterwards."""
        # Snapshots written when memory runs out, each over the last: cuDNN retries with less memory, and a search for
        # the largest batch runs out many times.
        if os.getpid() != self._process or self._ooms >= 4:
            return
        self._ooms += 1
        with contain(self._fail):
            path = self._stem.with_name(f"{self._stem.name}_oom.pickle")
            self._recording.write(path)
            self._warn(f"memory ran out: {path.name} has the allocator's blocks at that moment")

    def _fail(self, error: Exception) -> None:
        self._closed = True
        self._warn(f"memory_snapshot is off after {describe(error)}")
        with suppress(Exception):
            self._recording.stop()


def bounded(snapshot: dict[str, Any], limit: int = MAX_BYTES) -> bytes | None:
    """Pickle a snapshot into at most ``limit`` bytes; drop the older half of its history until it fits."""
    while len(content := pickle.dumps(snapshot)) > limit:
        traces = snapshot.get("device_traces") or []
        if not any(traces):
            return None
        snapshot = {**snapshot, "device_traces": [trace[(len(trace) + 1) // 2 :] for trace in traces]}
    return content


_open_windows: list[SnapshotWindow] = []
"""The windows of open sessions: torch cannot remove its one observer of a process."""


def _memory_ran_out() -> None:
    for window in _open_windows[:]:
        window.memory_ran_out()
