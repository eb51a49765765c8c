"""Counts of the fetches that found no batch ready, and of the starts of worker processes."""

from __future__ import annotations


class Prefetch:
    """Count fetches from loaders with worker processes, and the starts of these processes."""

    def __init__(self) -> None:
        self._workers = self._fetches = self._unready = self._starts = self._start_ns = 0
        self._begun_ns: int | None = None
        self._begun_before = False

    def add(self, workers: int, *, ready: bool) -> None:
        self._workers = workers
        self._fetches += 1
        self._unready += not ready

    def begin_start(self, workers: int, now_ns: int) -> None:
        """Begin to time the start of worker processes; the first one of a run is needed and not counted."""
        self._workers = workers
        self._begun_ns = now_ns if self._begun_before else None
        self._begun_before = True

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
