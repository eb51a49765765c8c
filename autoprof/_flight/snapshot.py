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

if TYPE_CHECKING:
    from ..config import MemorySnapshot

ENTRIES: Final = 100_000
"""The newest allocations and frees that are recorded."""
MAX_BYTES: Final = 256 * 2**20
"""The largest size of a file: pytorch.org/memory_viz loads it into a browser."""


class SnapshotWindow:
    """Record the allocator for a window of steps and write its snapshot; or write one when memory has run out.

    Where the user already records, that recording goes on and only its snapshot is taken. Raises nothing.
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
        self._history = find_allocator_history() if history is None else history
        self._ended = 0
        self._started = False
        """Whether this object has started the allocator's recording."""
        self._open = False
        self._ooms = 0
        self._process = os.getpid()

    def begin(self) -> None:
        """Start the recordings that begin with the first step."""
        if self._history is None or not self._history.available():
            self._warn("memory_snapshot: there is no CUDA device, so no snapshot is written")
            self._open = False
            self._ended = -1
            return
        if self._wanted.oom:
            _observe_oom(self, self._history)
        self._attempt(self._enter)

    def step_begins(self, step: int) -> None:
        """Follow the begin of a step; calls for unsampled steps are not needed."""
        if self._ended < 0:
            return
        self._ended = step - 1
        self._attempt(self._leave)
        self._attempt(self._enter)

    def close(self) -> None:
        """Write the snapshot of an unfinished window, and stop recording."""
        _forget(self)
        if self._ended < 0 or os.getpid() != self._process:
            return
        if self._open:
            self._attempt(self._write_window)
        self._ended = -1
        self._attempt(self._stop)

    def _enter(self) -> None:
        history = self._history
        if self._wanted.first is not None and self._ended == self._wanted.first - 1:
            self._open = True
            if history is not None and not history.recording():
                history.start(entries=ENTRIES, stacks="python")
                self._started = True

    def _leave(self) -> None:
        if self._open and self._ended >= (self._wanted.first or 1) - 1 + self._wanted.window:
            self._write_window()
            self._stop()

    def _stop(self) -> None:
        if self._history is not None and self._started:
            self._started = False
            self._history.stop()

    def _write_window(self) -> None:
        self._open = False
        first = self._wanted.first or 1
        path = self._write("")
        if path is not None:
            steps = f"steps {first} to {self._ended}" if self._ended > first else f"step {first}"
            self._warn(f"{path.name} has the allocations of {steps}; their times include the cost of recording")

    def memory_ran_out(self) -> None:
        """Write the allocator's blocks; torch raises its exception afterwards."""
        # Snapshots written when memory runs out, each over the last: cuDNN retries with less memory, and a search for
        # the largest batch runs out many times.
        if os.getpid() == self._process and self._ooms < 4:
            self._ooms += 1
            self._attempt(self._write_oom)

    def _write_oom(self) -> None:
        path = self._write("_oom")
        if path is not None:
            self._warn(f"memory ran out: {path.name} has the allocator's blocks at that moment")

    def _write(self, suffix: str) -> Path | None:
        path = self._stem.with_name(f"{self._stem.name}{suffix}.pickle")
        assert self._history is not None
        content = bounded(self._history.snapshot())
        if content is None:
            self._warn(f"{path.name} is not written: even without history it exceeds {format_bytes(MAX_BYTES)}")
            return None
        write_atomic(path, content)
        return path

    def _attempt(self, action: Callable[[], object]) -> None:
        with contain(self._fail):
            action()

    def _fail(self, error: Exception) -> None:
        self._ended = -1
        self._warn(f"memory_snapshot is off after {describe(error)}")
        with suppress(Exception):
            self._stop()


def bounded(snapshot: dict[str, Any], limit: int = MAX_BYTES) -> bytes | None:
    """Pickle a snapshot into at most ``limit`` bytes; drop the older half of its history until it fits."""
    while len(content := pickle.dumps(snapshot)) > limit:
        traces = snapshot.get("device_traces") or []
        if not any(traces):
            return None
        snapshot = {**snapshot, "device_traces": [trace[(len(trace) + 1) // 2 :] for trace in traces]}
    return content


_windows: list[SnapshotWindow] = []


def _observe_oom(window: SnapshotWindow, history: AllocatorHistory) -> None:
    """Write the window's snapshot when memory runs out."""
    _windows.append(window)
    history.on_oom(_ran_out)


def _forget(window: SnapshotWindow) -> None:
    if window in _windows:
        _windows.remove(window)


def _ran_out() -> None:
    for window in _windows[:]:
        window.memory_ran_out()
