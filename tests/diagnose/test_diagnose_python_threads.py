"""Other Python threads: which of them compute, and where."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from evidence_builders import MS

from autoprof.diagnose import PythonThread, ThreadMonitor


def test_a_thread_has_the_processors_that_it_used_between_the_looks() -> None:
    """Neither what it computed before the first one, nor a thread of autoprof."""
    now_ns, cpu_ns = 0, {7: 5000 * MS, 8: 0}
    threads: dict[int, Any] = {
        threading.get_ident(): SimpleNamespace(name="MainThread", native_id=1),
        -1: SimpleNamespace(name="prefetch", native_id=7),
        -2: SimpleNamespace(name="autoprof-monitor", native_id=8),
    }
    monitor = ThreadMonitor(cpu_ns.get, lambda: threads, lambda: now_ns)
    for _ in range(20):
        now_ns += 100 * MS
        cpu_ns[7] += 60 * MS
        cpu_ns[8] += 100 * MS
        monitor.look()
    assert monitor.busy() == (PythonThread("prefetch", 0.6),)


def test_a_real_thread_is_found_with_its_line() -> None:
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
            if seen and seen[0].where:
                break
    finally:
        stop.set()
        thread.join()
    (found,) = [one for one in seen if one.name == "busy"]
    assert found.where.endswith(" compute")
