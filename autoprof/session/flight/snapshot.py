"""The allocator's snapshot, of a deep capture or when memory runs out: ``memory_snapshot_rank0_oom.pickle``.

The file has the format of ``torch.cuda.memory._dump_snapshot``, for pytorch.org/memory_viz.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

from ...base.failures import contain, describe
from ...base.storage.atomic import write_atomic
from ...devices import AllocatorHistory


class AllocatorRecording:
    """A recording of the allocator for a snapshot. One that the user has started goes on."""

    def __init__(self, history: AllocatorHistory) -> None:
        self._history = history
        self._started = False

    def start(self) -> None:
        """Record from now on."""
        if not self._history.recording():
            self._history.start(entries=100_000, stacks="python")
            self._started = True

    def write(self, path: Path) -> None:
        """Write a snapshot."""
        write_atomic(path, pickle.dumps(self._history.snapshot()))

    def stop(self) -> None:
        """Stop the recording that ``start`` began."""
        if self._started:
            self._started = False
            self._history.stop()


class OomSnapshot:
    """Write the allocator's blocks when memory runs out, from ``open`` to ``close``. Raises nothing."""

    def __init__(
        self, folder: Path, rank: int, warn: Callable[[str], None], history: AllocatorHistory | None = None
    ) -> None:
        self._path = folder / f"memory_snapshot_rank{rank}_oom.pickle"
        self._warn = warn
        self._history = AllocatorHistory() if history is None else history
        self._left = 4
        """Snapshots that may be written, each over the last: a search for the largest batch runs out many times."""
        self._process = os.getpid()

    def open(self) -> None:
        """Wait for the memory to run out."""
        if not self._history.available():
            self._warn("memory_snapshot: there is no CUDA device, so no snapshot is written")
            return
        _open_snapshots.append(self)
        self._history.on_oom(_memory_ran_out)

    def close(self) -> None:
        """Write no more."""
        if self in _open_snapshots:
            _open_snapshots.remove(self)

    def memory_ran_out(self) -> None:
        """Write the allocator's blocks; torch raises its exception afterwards."""
        if os.getpid() != self._process or self._left <= 0:
            return
        self._left -= 1
        with contain(self._fail):
            write_atomic(self._path, pickle.dumps(self._history.snapshot()))
            self._warn(f"memory ran out: {self._path.name} has the allocator's blocks at that moment")

    def _fail(self, error: Exception) -> None:
        self._left = 0
        self._warn(f"memory_snapshot is off after {describe(error)}")


_open_snapshots: list[OomSnapshot] = []
"""Those of open sessions: torch cannot remove its one observer of a process."""


def _memory_ran_out() -> None:
    for snapshot in _open_snapshots[:]:
        snapshot.memory_ran_out()
