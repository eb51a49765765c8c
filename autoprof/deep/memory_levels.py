"""Allocated and reserved memory over time, from the ``[memory]`` events of a trace."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final, TypedDict

CPU: Final = 0
"""torch's device type of the CPU in ``[memory]`` events."""


class MemoryChange(TypedDict, total=False):
    """Memory at the end of an interval, and its change and peak inside."""

    allocated_bytes: int
    reserved_bytes: int
    grown_bytes: int
    peak_bytes: int


class MemoryLevels:
    """Memory levels of the device with the most allocations; of the CPU if no device allocated."""

    def __init__(self) -> None:
        self._all: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
        self._chosen: list[tuple[int, int, int, int]] | None = None
        self._times: list[int] = []
        self.of_device = False
        """Whether the levels are a device allocator's."""

    def add(self, at: int, args: dict[str, Any]) -> None:
        """Add one ``[memory]`` event."""
        device = int(args.get("Device Type", CPU)), int(args.get("Device Id", -1))
        allocated, reserved = args.get("Total Allocated"), args.get("Total Reserved")
        if allocated is None:
            return
        self._all.setdefault(device, []).append((at, int(allocated), int(reserved or 0), int(args.get("Bytes", 0))))

    def between(self, start: int, end: int) -> MemoryChange:
        """Return the memory change from ``start`` to ``end``; empty if memory was not recorded."""
        levels = self._levels()
        if not levels:
            return {}
        first, last = bisect_right(self._times, start) - 1, bisect_right(self._times, end) - 1
        before = self._before(first)
        now = levels[last][1] if last >= 0 else before
        found: MemoryChange = {
            "allocated_bytes": now,
            "grown_bytes": now - before,
            "peak_bytes": max((one[1] for one in levels[first + 1 : last + 1]), default=before),
        }
        found["peak_bytes"] = max(found["peak_bytes"], before)
        if self.of_device and last >= 0:
            found["reserved_bytes"] = levels[last][2]
        return found

    def last(self, which: str) -> int | None:
        """Return the last level in bytes of ``allocated`` or ``reserved`` memory."""
        levels = self._levels()
        if not levels or (which == "reserved" and not self.of_device):
            return None
        return levels[-1][1 if which == "allocated" else 2]

    def _before(self, index: int) -> int:
        if index >= 0:
            return self._levels()[index][1]
        _at, allocated, _reserved, change = self._levels()[0]  # the trace has no level before its first event
        return allocated - change

    def _levels(self) -> list[tuple[int, int, int, int]]:
        if self._chosen is None:
            devices = [key for key in self._all if key[0] != CPU]
            chosen = max(devices or self._all, key=lambda key: len(self._all[key]), default=None)
            self.of_device = bool(devices)
            self._chosen = sorted(self._all[chosen]) if chosen is not None else []
            self._times = [one[0] for one in self._chosen]
        return self._chosen
