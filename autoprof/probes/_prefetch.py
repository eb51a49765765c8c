"""Counts of the fetches that found no batch ready, and of the starts of worker processes."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet


class Prefetch:
    """Count fetches from loaders with worker processes, and the starts of these processes."""

    def __init__(self) -> None:
        self._workers = self._fetches = self._unready = self._starts = self._start_ns = 0
        self._begun_ns: int | None = None
        self._loaders: WeakSet[Any] = WeakSet()
        """The loaders whose workers were started, and that are still there."""
        self._known = 0
        """How many there were so far."""

    def add(self, workers: int, *, ready: bool) -> None:
        self._workers = workers
        self._fetches += 1
        self._unready += not ready

    def begin_start(self, loader: Any, now_ns: int) -> None:
        """Begin to time the start of a loader's worker processes; the first one of each loader is needed, not counted.

        A new loader is another one as long as all before it are there, and else it takes the place of one of them.
        """
        self._workers = loader.num_workers
        is_new = loader not in self._loaders
        self._begun_ns = None if is_new and len(self._loaders) == self._known else now_ns
        if is_new:
            self._loaders.add(loader)
            self._known += 1

    @property
    def is_starting(self) -> bool:
        """Whether the first batch since a start is awaited."""
        return self._begun_ns is not None

    def end_start(self, now_ns: int) -> None:
        """Count the start, which ends with the first batch."""
        if self._begun_ns is not None:
            self._starts += 1
            self._start_ns += max(now_ns - self._begun_ns, 0)
            self._begun_ns = None

    def counts(self) -> dict[str, int]:
        """Return the counts; nothing where no worker process prepared a batch, no starts where there were none."""
        if not self._fetches and not self._starts:
            return {}
        counts = {"workers": self._workers, "fetches": self._fetches, "unready": self._unready}
        if self._starts:
            counts.update(starts=self._starts, start_ns=self._start_ns)
        return counts
