"""The facts of a run beside its names: step time, throughput, overhead, losses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..base.summary import NEGLIGIBLE_BIAS, OTHER_TARGETS, Summary, format_counts
from ..base.units import (
    NS_PER_MS,
    count,
    format_bytes,
    format_ms,
    format_ns,
    format_percent,
    format_rate,
    format_span,
)
from .measurements import brief_work, metric_phrases, progress_text, work_sentence
from .memory_text import readings

Fact = tuple[str, str]
"""A label of at most ten characters, and its text."""


def _format_time(ns: float) -> str:
    """Format the length of a step: milliseconds, or microseconds where it is shorter than one."""
    return format_ns(ns) if 0 < ns < NS_PER_MS else format_ms(ns)


def headline(summary: Summary, *, full: bool = False) -> str:
    """Phrase how many steps there were, how many were recorded, by which clock; with ``full`` also of which kinds."""
    unshown = summary.skipped.get(OTHER_TARGETS, 0)
    steps = summary.all_steps
    parts = [f"{summary.steps} recorded" if steps != summary.steps or not steps else "all recorded"]
    if full:
        parts += [f"{unshown} while other modules were timed"] if unshown else []
        parts += [f"{summary.warmup_steps} warm-up"] if summary.warmup_steps else []
        parts += [f"{summary.unsampled_steps} not sampled"] if summary.unsampled_steps else []
    clock = f", {summary.clock} time" if summary.steps else ""
    return f"autoprof: {count(steps, 'step')} ({', '.join(parts)}){clock}"


FULL: Final = "autoprof show --full"
"""The command that shows every figure."""
PAGE: Final = "autoprof report"
"""The command that shows the run as a page."""
NOTHING: Final = (
    "nothing was recorded: no step ended after the warm-up; train for more steps, or, with autoprof.instrument, end "
    "each one by session.step()"
)
"""The reason of a report without figures."""


def run_facts(summary: Summary, *, full: bool = False) -> Iterator[Fact]:
    """Yield the facts of the short report, in its order; with ``full`` those of the full one."""
    if summary.steps:
        yield "step", _step(summary, full)
        if (bias := bias_text(summary)) is not None:
            yield "", bias
    yield from _measured(summary, full)
    if full and summary.loader.get("fetches"):
        workers, fetches, unready = (summary.loader[key] for key in ("workers", "fetches", "unready"))
        yield "loader", f"{unready} of {fetches} fetches found no batch ready (num_workers={workers})"
    if full and summary.memory:
        yield "memory", ", ".join(readings(summary.memory))
    elif (peak := summary.memory.get("peak_bytes")) is not None:
        yield "memory", f"peak {format_bytes(peak)} allocated"
    elif (peak := summary.memory.get("rss_peak_bytes")) is not None:
        yield "memory", f"peak {format_bytes(peak)} resident"
    if summary.steps:
        yield "overhead", _overhead(summary)
    skipped = {reason: number for reason, number in summary.skipped.items() if reason != OTHER_TARGETS}
    for word, reasons in (("dropped", summary.dropped), ("skipped", skipped)):
        if reasons:
            yield word, format_counts(reasons)


def _measured(summary: Summary, full: bool) -> Iterator[Fact]:
    """Yield throughput, operations, progress and the readings of the device and the host."""
    progress, work = summary.progress, summary.work
    if summary.throughput is not None:
        named = full and progress is not None and progress.source not in ("", "session.log")
        source = f" (samples: {progress.source})" if progress is not None and named else ""
        yield "throughput", format_rate(summary.throughput, summary.throughput_unit) + source
    elif summary.steps and progress is not None and progress.no_throughput:
        yield "throughput", f"unknown: {progress.no_throughput}"
    if full and work is not None:
        yield "work", work_sentence(work)
        yield from (("", note) for note in work.notes)
    elif brief := brief_work(work):
        yield "work", ", ".join(brief)
    if text := progress_text(summary):
        yield "progress", text
    if full or summary.clock == "device":
        for place, prefix in (("GPU" if full else "device", "gpu_"), ("host", "host_")):
            if use := ", ".join(metric_phrases(summary, prefix, last=not full)):
                yield place, use


def _overhead(summary: Summary) -> str:
    """Phrase the overhead of autoprof: ``start 0.3 s, steps 0.4 %, end 0.2 s``."""
    share = format_percent(summary.overhead)
    if summary.start_ns is None:
        return f"{share} of the time of all steps"
    end = "" if summary.end_ns is None else f", end {format_span(summary.end_ns)}"
    return f"start {format_span(summary.start_ns)}, steps {share}{end}"


def shown_path(folder: Path) -> str:
    """Return a path relative to the working directory where it is below it."""
    path = os.path.relpath(folder)
    return str(folder) if path.startswith(os.pardir) else path


def _step(summary: Summary, full: bool) -> str:
    times = [("p50", summary.step_p50_ns), ("p95", summary.step_p95_ns)]
    times += [("min", summary.step_min_ns), ("max", summary.step_max_ns)] if full else []
    spread = ", ".join(f"{word} {_format_time(ns)}" for word, ns in times)
    if full and summary.unsampled_ns and summary.unsampled_steps:
        mean, recorded = _format_time(summary.run_mean_ns), _format_time(summary.step_mean_ns)
        every = count(summary.steps + summary.unsampled_steps, "step")
        text = f"mean {mean} over {every}; the recorded ones: mean {recorded}, {spread}"
    else:
        text = f"mean {_format_time(summary.step_mean_ns)}, {spread}"
    micro = summary.micro_steps or 0
    return f"{text}; {micro} forwards with a backward per optimizer step" if micro > 1 else text


def bias_text(summary: Summary) -> str | None:
    """Phrase by how much recorded steps differ from all, the cost of recording included; None where little."""
    longer = summary.step_mean_ns / max(summary.run_mean_ns, 1) - 1
    if not summary.unsampled_steps or abs(longer) < NEGLIGIBLE_BIAS:
        return None
    word, mean = "longer" if longer > 0 else "shorter", _format_time(summary.run_mean_ns)
    differ = f"{format_percent(abs(longer))} {word}"
    return f"the mean of all steps is {mean}; the recorded ones, which all figures describe, are {differ}"
