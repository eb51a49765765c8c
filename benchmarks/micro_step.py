"""Measure the end of a step by its number of spans: resolution, statistics, each sink."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

from autoprof import StepFrame, Summary
from autoprof._stats import Aggregate
from autoprof._storage.runs import RunFolder

from .engine import Synthetic, frames_of
from .micro import Case, turns
from .ours import Discard

SPANS: Final = (10, 80, 400)
"""Sizes of a step: a demo of five modules, the 40 tiny layers, a transformer with every submodule."""
TOGETHER: Final = 16
"""Steps after which waiting steps are resolved, so that postponed work is counted."""
FRAMES: Final = 64
SINKS: Final = ("console", "log", "jsonl", "memory_plot")


def ends(rounds: int, sizes: Sequence[int] = SPANS) -> dict[str, Any]:
    """Return the cost of ``session.step()`` with a sequence known and seen first, and of the statistics alone."""
    return {str(spans): _ends_of(spans, rounds) for spans in sizes}


def _ends_of(spans: int, rounds: int) -> dict[str, Any]:
    draw, synthetic = random.Random(2), Synthetic(spans)
    try:
        cases = {
            "planned": _end(synthetic, synthetic.feed),
            "first_sight": _end(synthetic, lambda: synthetic.feed_anew(draw)),
            "aggregate": _adding(frames_of(spans, FRAMES)),
        }
        cases["planned"]()
        times = {name: median(taken) for name, taken in turns(cases, rounds).items()}
        synthetic.check()
    finally:
        synthetic.close()
    count = len(frames_of(spans, 1)[0].layout)
    return {
        "spans": count,
        **{f"{name}_ns": taken for name, taken in times.items()},
        **{f"{name}_per_span_ns": round(taken / count, 1) for name, taken in times.items()},
    }


def _end(synthetic: Synthetic, feed: Callable[[], None]) -> Case:
    """Return a case: the end of a step, and its share of the work that the session does for several steps at once."""

    def end() -> int:
        spent = 0
        for _ in range(TOGETHER):
            feed()
            began = perf_counter_ns()
            synthetic.step()
            spent += perf_counter_ns() - began
        began = perf_counter_ns()
        synthetic.flush()
        return (spent + perf_counter_ns() - began) // TOGETHER

    return end


def _adding(frames: Sequence[StepFrame]) -> Case:
    add = Aggregate().add

    def adds() -> int:
        began = perf_counter_ns()
        for frame in frames:
            add(frame)
        return (perf_counter_ns() - began) // len(frames)

    return adds


def sinks(repetitions: int, sizes: Sequence[int] = SPANS) -> dict[str, Any]:
    """Return the cost of each sink per step by number of spans, with its flushing and redrawing."""
    return {name: {str(spans): _sink(name, spans, repetitions) for spans in sizes} for name in SINKS}


def _sink(name: str, spans: int, repetitions: int) -> dict[str, float]:
    from autoprof._notes import Notes
    from autoprof._session.outputs import Outputs
    from autoprof.config import load_config
    from autoprof.sinks import RunInfo, make_sinks

    frames = frames_of(spans, FRAMES)
    summaries = _Summaries(frames)
    folder = Path(tempfile.mkdtemp(prefix="autoprof-bench-"))
    times = []
    try:
        run = RunInfo(RunFolder.create(folder), 0, Discard())
        (sink,) = make_sinks(load_config({"sinks": {name: {}}}).sinks, run)
        outputs = Outputs([sink], summaries, Notes(), perf_counter_ns)
        for _ in range(repetitions):
            for frame in frames:
                began = perf_counter_ns()
                outputs.write(frame)
                times.append(perf_counter_ns() - began)
        outputs.close(summaries())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"median_ns": median(times), "mean_ns": round(sum(times) / len(times)), "max_ns": max(times)}


class _Summaries:
    """The statistics of some frames."""

    def __init__(self, frames: Sequence[StepFrame]) -> None:
        self._aggregate = Aggregate()
        for frame in frames:
            self._aggregate.add(frame)

    def __call__(self) -> Summary:
        """Return the summary."""
        return self._aggregate.summary()
