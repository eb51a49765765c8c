"""Other Python threads: which of them compute."""

from __future__ import annotations

import sys
import threading
from itertools import count

import pytest
from waiting import LIMIT_S

from autoprof.diagnose import ThreadMonitor, _python_threads


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: the CPU time of another thread")
def test_a_real_thread_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has computed between two looks, which are a nanosecond apart on the clock of the test."""
    monkeypatch.setattr(_python_threads, "perf_counter_ns", count(1).__next__)
    begin, computed, end = (threading.Event() for _ in range(3))

    def compute() -> None:
        begin.wait(LIMIT_S)
        sum(range(1000))
        computed.set()
        end.wait(LIMIT_S)

    thread, monitor = threading.Thread(target=compute, name="busy"), ThreadMonitor()
    thread.start()
    try:
        monitor.look()
        begin.set()
        assert computed.wait(LIMIT_S)
        monitor.look()
    finally:
        end.set()
        thread.join()
    assert "busy" in [one.name for one in monitor.busy()]
