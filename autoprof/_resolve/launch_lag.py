"""How far the device's queue is ahead of the host's launches, and where it ran dry: no synchronisation needed.

A mark is recorded by the host at one time and passed by the device at another. The difference is the two clocks'
offset, which nobody knows, plus the work that stood in the queue: the lead. Where the queue is empty there is only the
offset, so the smallest difference is the lead's zero.

What lies between two marks of a stream is host-bound where the lead is gone at the second one: the device had done all
that it was given and waited for the next launch; it was done when the host was, not when it could have been. For how
long it stood still no mark tells: host-bound time is the most that launch gaps can have taken.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..frame import NOT_MEASURED, Nanoseconds

DRY_NS: Final = 30_000
"""A lead up to this is none: events scatter by 10 to 30 µs where the queue runs dry (nvbench#184)."""
DRIFT_PPM: Final = 100
"""How fast the zero of the steps before is allowed to rise, for clocks that run apart: it is assumed, two quartz
crystals differ by less. A queue that never runs dry keeps a lead L known for L / 100 ppm: 20 ms for 200 s."""


class QueueLead:
    """Find the lead at each mark. A step that begins where the last one ended knows the zero from there."""

    def __init__(self) -> None:
        self._until_ns: int | None = None
        self._zero_ns = 0

    def of(self, begun_ns: int, host: Nanoseconds, ns: Nanoseconds, device: Nanoseconds, end: int) -> Nanoseconds:
        """Return the leads of a step's instants, ``NOT_MEASURED`` where there is none.

        ``host`` and ``ns`` are the host's and the device's times of each since the step's start, which was at
        ``begun_ns`` by the host's clock; ``device`` is whose clock it is (-1: none); ``end`` is the step's end.
        """
        ahead = ns - host
        lead = np.full_like(ns, NOT_MEASURED)
        for one in range(int(device.max(initial=-1)) + 1):
            seen = device == one
            if not seen.any():
                continue
            zero = int(ahead[seen].min())
            if one == device[0]:
                zero = self._carry(begun_ns, zero, int(host[end]), int(ahead[end]) if device[end] == one else None)
            lead[seen] = ahead[seen] - zero
        return lead

    def _carry(self, begun_ns: int, zero_ns: int, length_ns: int, ahead_ns: int | None) -> int:
        """Hold the step's own zero against that of the steps before; keep the lower one for the next step."""
        if begun_ns == self._until_ns:
            zero_ns = min(zero_ns, self._zero_ns)
        self._until_ns = None
        if ahead_ns is not None:
            self._until_ns = begun_ns + length_ns
            self._zero_ns = zero_ns - ahead_ns + length_ns * DRIFT_PPM // 1_000_000
        return zero_ns


def waited_ns(ns: Nanoseconds, lead: Nanoseconds) -> Nanoseconds:
    """Return for each instant of one stream, in order, how long it had been host-bound since the first."""
    host_bound = np.where(lead[1:] <= DRY_NS, np.maximum(np.diff(ns), 0), 0)
    sums = np.zeros_like(ns)
    np.cumsum(host_bound, out=sums[1:])
    return sums
