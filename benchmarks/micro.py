"""Single costs: the user's own spans, set-up and import."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

from torch import nn

import autoprof

from .engine import OPTIONS
from .machine import clock_cost_ns
from .workloads import Workload

CALLS: Final = 2000
_IMPORTS: Final = (
    "from time import perf_counter as t; a = t(); import torch; b = t(); import autoprof; c = t(); print(b - a, c - b)"
)

Case = Callable[[], int]


def turns(cases: Mapping[str, Case], rounds: int) -> dict[str, list[int]]:
    """Call each case once a round in an order drawn anew; a case returns the nanoseconds that it took."""
    draw, names = random.Random(1), list(cases)
    times: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(rounds):
        draw.shuffle(names)
        for name in names:
            times[name].append(cases[name]())
    return times


def _plain() -> None:
    pass


def _nothing() -> int:
    repeat = range(CALLS)
    began = perf_counter_ns()
    for _ in repeat:
        pass
    return perf_counter_ns() - began


def _calls(function: Callable[[], object]) -> Case:
    def run() -> int:
        repeat = range(CALLS)
        began = perf_counter_ns()
        for _ in repeat:
            function()
        return perf_counter_ns() - began

    return run


def _spans() -> int:
    repeat, span = range(CALLS), autoprof.span
    began = perf_counter_ns()
    for _ in repeat:
        with span("Micro/span"):
            pass
    return perf_counter_ns() - began


def _logs() -> int:
    repeat, log = range(CALLS), autoprof.log_timing
    began = perf_counter_ns()
    for _ in repeat:
        log("Micro/logged", 1.5)
    return perf_counter_ns() - began


def _in_session(run: Case) -> Case:
    def inside() -> int:
        with autoprof.instrument(nn.Sequential(nn.Identity()), OPTIONS) as session:
            session.step()
            return run()

    return inside


def user_spans(rounds: int) -> dict[str, float]:
    """Return the cost of one ``@timed`` call, one ``span`` and one ``log_timing``, off and on, over doing without."""
    timed = _calls(autoprof.timed("Micro/timed")(_plain))
    cases: dict[str, Case] = {
        "nothing": _nothing,
        "plain_call": _calls(_plain),
        "timed_off": timed,
        "timed_on": _in_session(timed),
        "span_off": _spans,
        "span_on": _in_session(_spans),
        "log_timing_off": _logs,
        "log_timing_on": _in_session(_logs),
    }
    times = turns(cases, rounds)
    return {
        f"{name}_ns": _paired(times[name], times["plain_call" if name.startswith("timed") else "nothing"])
        for name in cases
        if name != "nothing"
    }


def _paired(mine: Sequence[int], base: Sequence[int]) -> float:
    return round(median(a - b for a, b in zip(mine, base, strict=True)) / CALLS, 1)


def setup(workloads: Sequence[Workload], repetitions: int = 5) -> dict[str, Any]:
    """Return the cost of ``instrument`` (with calibration) and of ``close`` for each workload, without sinks."""
    results = {}
    for workload in workloads:
        opened, closed = [], []
        for _ in range(repetitions):
            began = perf_counter_ns()
            session = autoprof.instrument(
                workload.model, {**workload.config, "sinks": {}}, optimizer=workload.optimizer
            )
            between = perf_counter_ns()
            session.close()
            opened.append(between - began)
            closed.append(perf_counter_ns() - between)
        results[workload.name] = {
            "modules": len(workload.targets),
            "instrument_ns": median(opened),
            "close_ns": median(closed),
        }
    return results


def imports(repetitions: int) -> dict[str, Any]:
    """Return the seconds that ``import torch`` takes in a new interpreter, and ``import autoprof`` on top of it."""
    torch_s, ours_s = [], []
    for _ in range(repetitions):
        done = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True)
        torch_part, ours_part = map(float, done.stdout.split())
        torch_s.append(torch_part)
        ours_s.append(ours_part)
    return {"torch_s": median(torch_s), "autoprof_s": median(ours_s), "samples_s": ours_s}


def run(workloads: Sequence[Workload], *, quick: bool) -> dict[str, Any]:
    """Measure all of it."""
    return {
        "clock_ns": round(clock_cost_ns(), 1),
        "user": user_spans(15 if quick else 100),
        "setup": setup(workloads),
        "imports": imports(3 if quick else 9),
    }
