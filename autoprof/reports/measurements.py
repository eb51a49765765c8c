"""Progress, work and readings in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ..base.frame import MODULE_PHASES, Phase
from ..base.summary import Summary, Work
from ..base.units import count, format_bytes, format_count, format_flops, format_ms, format_percent, format_span
from .text import render_rows


def progress_text(summary: Summary) -> str:
    """Phrase the time to finish; empty where it is unknown."""
    progress = summary.progress
    if progress is None or progress.remaining_steps is None or progress.remaining_ns is None:
        return ""
    left = f": {format_span(progress.remaining_ns)}" if progress.remaining_steps else ""
    return f"{progress.remaining_steps} of {progress.total_steps} steps to go{left}"


def brief_work(work: Work | None) -> list[str]:
    """Phrase the rate of operations briefly, for the panel; empty where there is no figure."""
    if work is None or work.flops_per_s is None:
        return []
    phrases = [f"{format_flops(work.flops_per_s)}/s"]
    if work.mfu is not None and work.hfu is not None:
        phrases.append(f"MFU {format_percent(work.mfu)}")
        phrases += [f"HFU {format_percent(work.hfu)}"] if work.hfu > work.mfu else []
    return phrases


def brief_metrics(summary: Summary) -> list[str]:
    """Phrase the last readings of the GPU and of the host."""
    return [*metric_phrases(summary, "gpu_", last=True), *metric_phrases(summary, "host_", last=True)]


def metric_phrases(summary: Summary, prefix: str, *, last: bool = False) -> Iterator[str]:
    """Yield the readings of ``gpu_`` or ``host_`` over the run with their ranges, or only the ``last`` ones."""
    for name, word, brief, show in _METRICS:
        metric = summary.metrics.get(prefix + name)
        if metric is None or (last and brief is None):
            continue
        if last:
            yield f"{brief}{show(metric.last)}"
        else:
            low, high = show(metric.low), show(metric.high)
            yield f"{word}{show(metric.mean)}" + ("" if low == high else f" ({low} to {high})")
    for name, metric in summary.metrics.items():
        if name.startswith(f"{prefix}throttled") and metric.mean and not (last and "_by_" in name):
            cause = name.removeprefix(f"{prefix}throttled").replace("_", " ")
            yield f"throttled{cause} {format_percent(metric.mean)} of the time"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


_METRICS: Final[tuple[tuple[str, str, str | None, Callable[[float], str]], ...]] = (
    ("utilization", "busy ", "GPU ", _percent),
    ("memory_bytes", "memory ", "", format_bytes),
    ("power_w", "power ", "", "{:.0f} W".format),
    ("sm_clock_mhz", "SM clock ", "", "{:.0f} MHz".format),
    ("memory_clock_mhz", "memory clock ", None, "{:.0f} MHz".format),
    ("temperature_c", "", "", "{:.0f} °C".format),
    ("cpu_cores", "this process kept busy ", "CPU ", "{:.1f} cores".format),
    ("cpu_busy", "the machine busy ", None, _percent),
)
"""The end of a metric's name, its words in the full report and in one line (None: not there), and its form."""


def work_sentence(work: Work) -> str:
    """Phrase the operations of a step, their rate and its share of the peak, or why there are none."""
    if work.reason is not None:
        return f"not counted: {work.reason}"
    parts = [f"{phase} {format_flops(flops)}" for phase in MODULE_PHASES if (flops := work.flops.get(str(phase)))]
    sentence = f"{', '.join(parts) or 'no counted operation'} a step"
    if work.flops_per_s is not None:
        sentence += f"; {format_flops(work.flops_per_s)}/s without recompute"
    if work.mfu is not None and work.hfu is not None:
        sentence += f"; MFU {format_percent(work.mfu)}, HFU {format_percent(work.hfu)} of the peak of {work.peak}"
    elif work.no_peak is not None:
        sentence += f"; no MFU: {work.no_peak}"
    return sentence


def communication_table(summary: Summary, width: int) -> list[str]:
    """Return the calls of the rows of communication in a mean step, their bytes and the time that nothing overlaps."""
    rows = [row for row in summary.rows if row.phase is Phase.COMM and row.communicated_bytes is not None]
    if not rows:
        return []
    lines = [["communication", "calls", "bytes", "exposed"]]
    for row in rows:
        calls, ns = row.calls / summary.steps, row.self_ns / summary.steps
        lines.append([row.name, format_count(calls), format_bytes(row.communicated_bytes or 0), format_ms(ns)])
    return render_rows(lines, width)


def work_table(work: Work | None, width: int) -> list[str]:
    """Return the operations of each name in one step, with the shares of the peak; most operations first."""
    most = 16
    counted = [] if work is None or work.reason else [row for row in work.rows if any(row.flops.values())]
    if not counted:
        return []
    rows = sorted(counted, key=lambda row: (-sum(row.flops.values()), row.name))
    lines = [["FLOP a step", *map(str, MODULE_PHASES), "per s", "MFU", "HFU"]]
    for row in rows[:most]:
        flops = [_short(row.flops.get(str(phase), 0)) for phase in MODULE_PHASES]
        shares = ["-" if share is None else format_percent(share) for share in (row.mfu, row.hfu)]
        lines.append([row.name, *flops, _short(row.flops_per_s or 0), *shares])
    more = [f"… and {count(len(rows) - most, 'more name')} with less work each"] if len(rows) > most else []
    return [*render_rows(lines, width), *more]


def _short(count: float) -> str:
    return format_flops(count).removesuffix("FLOP").rstrip() if count else "-"
