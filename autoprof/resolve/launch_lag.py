"""The launch lag: the work queued on the device at each mark, and where the queue was empty. No synchronisation.

The host records a mark at one time and the device passes it at another. The difference is the unknown offset of the
two clocks plus the length of the queued work: the launch lag. Where the queue is empty only the offset remains, so the
smallest difference is a lag of zero.

The time between two marks of a stream is host-bound where the lag is zero at the second mark: the device had finished
all queued work and waited for the next launch. Marks do not show for how long it waited, so host-bound time is an upper
bound of the time lost in launch gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..base.frame import NOT_MEASURED, Nanoseconds

EMPTY_QUEUE_NS: Final = 30_000
"""A lag of at most this counts as zero: events scatter by 10 to 30 µs where the queue runs empty (nvbench#184)."""
DRIFT_PPM: Final = 100
"""The rate at which the zero of earlier steps may rise, for clocks that drift. It is an assumption; two quartz crystals
differ by less. A queue that never runs empty keeps a lag L known for L / 100 ppm: 20 ms for 200 s."""


class LaunchLag:
    """Compute the launch lag at each mark. A step that begins where the last one ended inherits its zero."""

    def __init__(self) -> None:
        self._until_ns: int | None = None
        self._zero_ns = 0

    def of(self, begun_ns: int, host: Nanoseconds, ns: Nanoseconds, device: Nanoseconds, end: int) -> Nanoseconds:
        """Return the lag at each mark of a step, ``NOT_MEASURED`` where there is none.

        ``host`` and ``ns`` are the host and device times of each mark since the step's start, which was at ``begun_ns``
        on the host clock. ``device`` is the index of the device that the time is of (-1: none); ``end`` is the position
        of the step's end.
        """
        difference = ns - host
        lag = np.full_like(ns, NOT_MEASURED)
        for one in range(int(device.max(initial=-1)) + 1):
            seen = device == one
            if not seen.any():
                continue
            zero = int(difference[seen].min())
            if one == device[0]:
                at_end = int(difference[end]) if device[end] == one else None
                zero = self._lower_zero(begun_ns, zero, int(host[end]), at_end)
            lag[seen] = difference[seen] - zero
        return lag

    def of_run(self, begun_ns: Sequence[int], host: Nanoseconds, ns: Nanoseconds) -> Nanoseconds:
        """Return the lag at each mark of steps in a row, all of one device: a row each, whose last mark is its end."""
        difference = ns - host
        lengths, ends = host[:, -1].tolist(), difference[:, -1].tolist()
        steps = zip(begun_ns, difference.min(axis=1).tolist(), lengths, ends, strict=True)
        zeros = [self._lower_zero(*step) for step in steps]
        lag: Nanoseconds = difference - np.array(zeros, dtype=np.int64)[:, None]
        return lag

    def _lower_zero(self, begun_ns: int, zero_ns: int, length_ns: int, at_end_ns: int | None) -> int:
        """Return the lower of this step's zero and the earlier steps' zero, and keep it for the next step."""
        if begun_ns == self._until_ns:
            zero_ns = min(zero_ns, self._zero_ns)
        self._until_ns = None
        if at_end_ns is not None:
            self._until_ns = begun_ns + length_ns
            self._zero_ns = zero_ns - at_end_ns + length_ns * DRIFT_PPM // 1_000_000
        return zero_ns


def host_bound_ns(ns: Nanoseconds, lag: Nanoseconds) -> Nanoseconds:
    """Return the host-bound time up to each mark since the first one, of marks of one stream in order, or rows."""
    waited = np.where(lag[..., 1:] <= EMPTY_QUEUE_NS, np.maximum(np.diff(ns), 0), 0)
    sums = np.zeros_like(ns)
    np.cumsum(waited, axis=-1, out=sums[..., 1:])
    return sums
