"""Other Python threads: which of them compute."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from itertools import count

import pytest
from evidence_builders import evidence_of
from waiting import LIMIT_S

from autoprof.base.summary import MetricStats
from autoprof.diagnose import PythonThread, RunFacts, ThreadMonitor, _python_threads, diagnose
from autoprof.diagnose._calls import CallSite
from autoprof.diagnose._environment import Environment


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
    found = {one.name: one for one in monitor.busy()}
    line = found["busy"].line
    assert line is not None
    assert (line.file, line.function, line.count) == (__file__, "compute", 1)
    assert line.source in ("computed.set()", "end.wait(LIMIT_S)")  # the innermost line of the program, not of threading
    assert threading.current_thread().name not in found
    assert (monitor.training_cores() or 0) > 0


POLLING = CallSite("report.py", 21, "run", "", "while not self.done: pass", 5, 0)


@pytest.mark.parametrize(
    ("cores", "training", "phase", "rule"),
    [
        (0.9, 0.2, "forward", "python-thread"),
        (0.9, 0.95, "forward", None),
        (0.1, 0.2, "forward", None),
        (0.9, 0.2, "user", None),
    ],
)
def test_a_thread_that_holds_the_interpreter_while_the_training_thread_waits_is_found(
    cores: float, training: float, phase: str, rule: str | None
) -> None:
    """Though a third thread computes for torch; none where the training thread computes as well, or waits in a span."""
    run = evidence_of({phase: 60, "backward": 30}, repeat=20)
    shares = {"host_cpu_busy": 0.5, "host_cpu_cores": 2.0, "host_cpu_waiting": 0.0}
    metrics = {name: MetricStats(share, share, share, share, 5) for name, share in shares.items()}
    facts = RunFacts(
        threads=(PythonThread("Reporter", cores, POLLING),),
        training_cores=training,
        environment=Environment("cpu", machine_cores=4),
    )
    summary = diagnose(replace(run, summary=replace(run.summary, metrics=metrics), facts=facts))
    found = [one for one in summary.findings if one.severity != "info"]
    said = [*summary.notes, *(one.why for one in found)]
    assert any("thread Reporter (report.py:21 run `while not self.done: pass`) takes" in text for text in said)
    assert [one.rule for one in found] == ([] if rule is None else [rule])
    if found:
        assert found[0].evidence["sites"] == [{"where": "report.py:21", "function": "run"}]
        assert found[0].gain_ns == pytest.approx(0.7 * run.summary.step_mean_ns, rel=0.01)


@pytest.mark.parametrize(("waiting", "rules"), [(0.5, ["python-thread"]), (0.0, [])])
def test_a_thread_beside_other_processes_keeps_as_much_of_a_processor_busy_as_it_gets(
    waiting: float, rules: list[str]
) -> None:
    """A fifth, where a thread waits for a processor half of the time."""
    run = evidence_of({"forward": 60, "backward": 30}, repeat=20)
    shares = {"host_cpu_busy": 1.0, "host_cpu_cores": 0.5, "host_cpu_waiting": waiting}
    metrics = {name: MetricStats(share, share, share, share, 5) for name, share in shares.items()}
    facts = RunFacts(
        threads=(PythonThread("Reporter", 0.2),), training_cores=0.1, environment=Environment("cpu", machine_cores=4)
    )
    summary = diagnose(replace(run, summary=replace(run.summary, metrics=metrics), facts=facts))
    assert [one.rule for one in summary.findings if one.severity != "info"] == rules


def test_the_line_of_a_thread_goes_to_json_and_back_and_older_runs_have_none() -> None:
    """They have the thread's name and its share of a processor."""
    facts = RunFacts(threads=(PythonThread("Reporter", 0.9, POLLING),))
    saved = json.loads(json.dumps(facts.to_dict()))
    assert RunFacts.from_dict(saved) == facts
    del saved["threads"][0]["line"]
    (thread,) = RunFacts.from_dict(saved).threads
    assert thread.described == "Reporter"
