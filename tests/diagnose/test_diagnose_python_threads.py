"""Other Python threads: which of them compute, which hold the GIL for it, and when that is a finding."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from evidence_builders import MS, evidence_of, finding_of

from autoprof.diagnose import PythonThread, RunFacts, StackTable, ThreadMonitor, ThreadStatistics, diagnose
from autoprof.diagnose._calls import CallSite
from autoprof.diagnose._python_threads import LOOK_EVERY_NS, MAX_LOOKS, read_cpu_ns
from autoprof.summary import Finding, MetricStats

SECOND = 1000 * MS
LINE = CallSite("loader.py", 41, "prefetch", "parse", "", 20, SECOND)


class Machine:
    """Threads whose CPU times the test sets. A look reads the clock at its begin and, if it found work, at its end."""

    def __init__(self, free: bool) -> None:
        self.cpu_ns = {7: 5 * SECOND, 8: 0}
        self.now_ns = 0
        self.free = free
        """Whether the thread computes while the training thread holds the GIL."""
        me = threading.get_ident()
        self.threads: dict[int, Any] = {
            me: SimpleNamespace(name="MainThread", native_id=1),
            -1: SimpleNamespace(name="prefetch", native_id=7),
            -2: SimpleNamespace(name="autoprof-monitor", native_id=8),
        }
        self.monitor = ThreadMonitor(self.cpu_ns.get, lambda: self.threads, self.read_ns)

    def read_ns(self) -> int:
        self.now_ns += 1000
        self.cpu_ns[7] += 1000 * self.free
        return self.now_ns

    def step(self, wall_ns: int = 100 * MS, cpu_ns: int = 60 * MS) -> None:
        self.now_ns += wall_ns
        self.cpu_ns[7] += cpu_ns
        self.cpu_ns[8] += wall_ns
        self.monitor.look()


@pytest.mark.parametrize("free", [False, True])
def test_a_thread_that_computes_while_the_training_thread_has_the_gil_does_not_hold_it(free: bool) -> None:
    """torch and numpy release it in their operations."""
    machine = Machine(free)
    for _ in range(20):
        machine.step()
    seen = machine.monitor.statistics()
    assert seen is not None
    (thread,) = seen.threads
    assert (thread.name, round(seen.cores(thread), 2)) == ("prefetch", 0.6)
    assert [one.name for one in seen.holding] == ([] if free else ["prefetch"])


def test_what_a_thread_computed_before_the_first_look_does_not_count() -> None:
    """It was not seen how long that took."""
    machine = Machine(False)
    machine.step()
    assert machine.monitor.statistics() is None
    machine.step(cpu_ns=0)
    seen = machine.monitor.statistics()
    assert seen is not None
    assert seen.threads == ()


def test_threads_that_end_and_begin_are_read_as_others() -> None:
    """A thread for each batch: its CPU time is what it computed since the last look."""
    machine = Machine(False)
    machine.step()
    for number in range(4):
        machine.threads[-1] = SimpleNamespace(name=f"Thread-{number}", native_id=20 + number)
        machine.cpu_ns[20 + number] = 70 * MS
        machine.step()
        del machine.threads[-1]
    seen = machine.monitor.statistics()
    assert seen is not None
    assert [round(seen.cores(thread), 3) for thread in seen.threads] == [0.175] * 4


def test_looks_are_rare_and_end() -> None:
    """A step of a microsecond is not looked at."""
    machine = Machine(False)
    for _ in range(5):
        machine.step(wall_ns=LOOK_EVERY_NS // 4)
    first = machine.monitor.statistics()
    assert first is None
    for _ in range(MAX_LOOKS + 10):
        machine.step()
    seen = machine.monitor.statistics()
    assert seen is not None
    assert seen.looks == MAX_LOOKS


def test_a_thread_that_does_not_exist_has_no_cpu_time() -> None:
    """Reading it raises nothing; the thread of the test has some."""
    assert read_cpu_ns(2**22 + 1) is None  # above the largest id of Linux
    assert (read_cpu_ns(threading.get_native_id()) or 0) > 0


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
        begun = read_cpu_ns(thread.native_id or 0) or 0
        while (read_cpu_ns(thread.native_id or 0) or 0) < begun + 20 * MS:
            stop.wait(0.01)
        seen = None
        for _ in range(200):
            stop.wait(0.01)
            monitor.look()
            seen = monitor.statistics()
            if seen is not None and seen.threads:
                break
    finally:
        stop.set()
        thread.join()
    assert seen is not None
    (found,) = [one for one in seen.threads if one.name == "busy"]
    assert found.lines.lines[0].function == "compute"


def judged(
    *,
    blocked: float = 0.5,
    waiting: float = 0.0,
    cores: float = 0.6,
    free: float = 0.0,
    parts: Mapping[str, float] | None = None,
    looks: int = 40,
) -> Finding | None:
    """Judge 20 steps beside a thread on ``cores`` processors, on ``free`` while the training thread has the GIL."""
    thread = PythonThread("prefetch", round(cores * SECOND), MS, round(free * MS), StackTable(20, SECOND, (LINE,)))
    values = {"host_cpu_blocked": blocked, "host_cpu_waiting": waiting}
    metrics = {name: MetricStats(value, value, value, value, 5) for name, value in values.items()}
    facts = RunFacts(threads=ThreadStatistics(looks, SECOND, (thread,)))
    assert RunFacts.from_dict(facts.to_dict()) == facts
    step = dict(parts or {"forward": 60, "backward": 40})
    return finding_of(diagnose(evidence_of(step, repeat=20, facts=facts, metrics=metrics)), "interpreter")


def test_a_thread_that_holds_the_gil_is_named_with_its_line() -> None:
    """Half of the step is lost."""
    finding = judged()
    assert finding is not None
    assert (finding.severity, finding.name) == ("critical", "loader.py:41 parse")
    assert "thread prefetch runs Python (loader.py:41 parse, 60.0 % of a processor)" in finding.why
    assert "blocked for 50.0 ms (50.0 % of the step)" in finding.why
    assert finding.gain_ns == 50 * MS


@pytest.mark.parametrize(
    "change",
    [
        {"free": 0.5},  # it has released the GIL
        {"blocked": 0.0},  # the training thread always runs
        {"cores": 0.2},  # the thread computes for less than half of the wait
        {"looks": 3},
        {"parts": {"data": 50, "forward": 50}},  # the training thread waits for its batch
        {"parts": {"forward": 50, "step": 100}},  # or for something outside all spans
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_wait_that_may_have_another_reason_is_no_finding(change: dict[str, Any]) -> None:
    """Neither is a thread beside which the training thread is not blocked."""
    assert judged(**change) is None


def test_a_busy_machine_hides_no_thread_that_holds_the_gil() -> None:
    """Of the time with a processor, two thirds are lost: the wait for a processor is no part of that."""
    finding = judged(blocked=0.2, waiting=0.7, cores=0.2)
    assert finding is not None
    assert finding.severity == "critical"
    assert round(finding.evidence["share"], 2) == 0.67
