"""The facts of a run beside its names: step time, throughput, excluded time, overhead, losses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .._stats.intervals import difference_error
from .._units import (
    NS_PER_MS,
    NS_PER_S,
    count,
    format_bytes,
    format_ms,
    format_ns,
    format_percent,
    format_rate,
    format_span,
)
from ..summary import NEGLIGIBLE_BIAS, OTHER_TARGETS, Excluded, Summary, format_counts
from .measurements import brief_device_metrics, brief_host_metrics, brief_overhead, brief_work, progress_text

Fact = tuple[str, str]
"""A label of at most ten characters, and its text."""
EXCLUDED: Final = 3
"""Kinds of excluded time named one by one."""


def format_time(ns: float) -> str:
    """Format the length of a step: milliseconds, or microseconds where it is shorter than one."""
    return format_ns(ns) if 0 < ns < NS_PER_MS else format_ms(ns)


def headline(summary: Summary) -> str:
    """Phrase how many steps there were, how many of them were recorded, and by which clock."""
    unshown = summary.skipped.get(OTHER_TARGETS, 0)
    steps = summary.all_steps
    parts = [f"{summary.steps} recorded" if steps != summary.steps or not steps else "all recorded"]
    parts += [f"{unshown} with other names"] if unshown else []
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


def run_facts(summary: Summary) -> Iterator[Fact]:
    """Yield the facts of the short report, in its order."""
    if summary.steps:
        yield "step", _step(summary)
        if (bias := bias_text(summary)) is not None:
            yield "", bias
    if summary.throughput is not None:
        yield "throughput", format_rate(summary.throughput, summary.throughput_unit)
    elif summary.steps and summary.progress is not None and summary.progress.no_throughput:
        yield "throughput", f"unknown: {summary.progress.no_throughput}"
    if work := brief_work(summary.work):
        yield "work", ", ".join(work)
    if text := progress_text(summary):
        yield "progress", text
    if summary.clock == "device":
        for place, use in (("device", brief_device_metrics(summary)), ("host", brief_host_metrics(summary))):
            if use:
                yield place, ", ".join(use)
    if (peak := summary.memory.get("peak_bytes")) is not None:
        yield "memory", f"peak {format_bytes(peak)} allocated"
    elif (peak := summary.memory.get("rss_peak_bytes")) is not None:
        yield "memory", f"peak {format_bytes(peak)} resident"
    if summary.excluded:
        yield "excluded", _excluded(summary)
    if summary.steps:
        yield "overhead", brief_overhead(summary)
    skipped = {reason: number for reason, number in summary.skipped.items() if reason != OTHER_TARGETS}
    for word, reasons in (("dropped", summary.dropped), ("skipped", skipped)):
        if reasons:
            yield word, format_counts(reasons)


def shown_path(folder: Path) -> str:
    """Return a path relative to the working directory where it is below it."""
    path = os.path.relpath(folder)
    return str(folder) if path.startswith(os.pardir) else path


def mean_of_all_ns(summary: Summary) -> float:
    """Return the mean time of all steps after the warm-up, recorded or not."""
    if summary.run_steps:
        return summary.run_ns / summary.run_steps
    if not summary.unsampled_ns or not summary.unsampled_steps:  # older versions saved only the second
        return summary.step_mean_ns
    return (summary.total_step_ns + summary.unsampled_ns) / (summary.steps + summary.unsampled_steps)


def _step(summary: Summary) -> str:
    spread = f"p50 {format_time(summary.step_p50_ns)}, p95 {format_time(summary.step_p95_ns)}"
    if summary.unsampled_ns and summary.unsampled_steps:
        mean, recorded = format_time(mean_of_all_ns(summary)), format_time(summary.step_mean_ns)
        every = count(summary.steps + summary.unsampled_steps, "step")
        text = f"mean {mean} over {every}; the recorded ones: mean {recorded}, {spread}"
    else:
        text = f"mean {format_time(summary.step_mean_ns)}, {spread}"
    micro = summary.micro_steps or 0
    return f"{text}; {micro} micro-batches per optimizer step" if micro > 1 else text


def bias_text(summary: Summary) -> str | None:
    """Phrase by how much recorded steps differ from the others, the cost of recording included; None where little."""
    if not (summary.unsampled_ns and summary.unsampled_steps):
        return None
    others_ns = summary.unsampled_ns / summary.unsampled_steps
    longer = summary.step_mean_ns / others_ns - 1
    error_ns = difference_error(summary.step_p50_ns, summary.step_p95_ns, summary.steps, summary.unsampled_steps)
    if abs(longer) < NEGLIGIBLE_BIAS + error_ns / others_ns:
        return None
    word = "longer" if longer > 0 else "shorter"
    return f"recorded steps are {format_percent(abs(longer))} {word} than the others; the times below are theirs"


def _excluded(summary: Summary) -> str:
    parts = sorted(summary.excluded, key=_length)
    texts = [f"{one.kind} {_short_span(one.total_ns)} ({count(one.calls, 'time')})" for one in parts]
    if len(texts) > EXCLUDED:
        texts[EXCLUDED:] = [f"{len(texts) - EXCLUDED} more"]
    return f"{'; '.join(texts)}{excluded_share(summary, *parts)}; in no step"


def excluded_share(summary: Summary, *parts: Excluded) -> str:
    """Phrase the part of the wall time that these take; nothing where there is no step to compare it with."""
    share = sum(one.total_ns for one in parts) / max(summary.wall_ns, 1)
    return f", {format_percent(share)} of the wall time" if 0 < summary.excluded_share < 1 else ""


def _short_span(ns: int) -> str:
    return format_span(ns) if ns >= NS_PER_S else format_ns(ns)


def _length(one: Excluded) -> int:
    return -one.total_ns
