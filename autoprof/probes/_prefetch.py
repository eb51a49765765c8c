"""Counts of the fetches that found no batch ready, where worker processes prepare them."""

from __future__ import annotations


class Prefetch:
    """Count fetches from loaders with worker processes."""

    def __init__(self) -> None:
        self._workers = self._fetches = self._unready = 0

    def add(self, workers: int, *, ready: bool) -> None:
        """Count one fetch."""
        self._workers = workers
        self._fetches += 1
        self._unready += not ready

    def counts(self) -> dict[str, int]:
        """Return the counts; nothing where no worker process prepared a batch."""
        if not self._fetches:
            return {}
        return {"workers": self._workers, "fetches": self._fetches, "unready": self._unready}
