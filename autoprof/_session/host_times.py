"""``HostTimes``: the clocks of a session's own account, one object that all its parts are given.

The times of a step are readings of its device's or the host's clock (``devices.Clock``); these decide when the session
works, and how long.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns, time_ns
from typing import Final, NamedTuple


class HostTimes(NamedTuple):
    """Functions that return nanoseconds."""

    wall_ns: Callable[[], int] = perf_counter_ns
    processor_ns: Callable[[], int] = thread_time_ns
    """Processor time of the calling thread."""
    unix_ns: Callable[[], int] = time_ns


HOST: Final = HostTimes()
"""The clocks of a run; tests have others."""
