"""Other Python threads: which of them compute."""

from __future__ import annotations

import threading

from autoprof.diagnose import PythonThread, ThreadMonitor


def test_a_real_thread_is_found() -> None:
    """It computes until its CPU time shows, however long that takes."""
    stop, monitor = threading.Event(), ThreadMonitor()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute, name="busy")
    thread.start()
    try:
        monitor.look()
        seen: tuple[PythonThread, ...] = ()
        for _ in range(500):
            stop.wait(0.02)
            monitor.look()
            seen = monitor.busy()
            if seen:
                break
    finally:
        stop.set()
        thread.join()
    assert "busy" in [one.name for one in seen]
