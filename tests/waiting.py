"""Wait for the work of another thread or process: for its result, never for the time that it usually takes."""

import threading
from collections.abc import Callable

LIMIT_S = 120
"""The longest wait for a thing that must happen: a machine that is slow or busy takes a part of it."""
_INTERVAL_S = 0.02


def wait_until(condition: Callable[[], object], what: str, limit_s: int = LIMIT_S) -> None:
    """Wait until a condition holds. Raises ``AssertionError``, which says what was awaited, after ``limit_s``."""
    interval = threading.Event()
    for _ in range(round(limit_s / _INTERVAL_S)):
        if condition():
            return
        interval.wait(_INTERVAL_S)
    assert condition(), f"waited {limit_s} s in vain for {what}"
