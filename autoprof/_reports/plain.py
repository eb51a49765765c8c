"""The plain line, for outputs without a terminal: the log of a job, a notebook, a pipe."""

from __future__ import annotations

from .._stats.name_lines import name_lines
from .._units import format_ms, format_rate, format_round_percent, format_span
from ..summary import Summary
from .measurements import brief_metrics, brief_work
from .panel import top_lines
from .text import safe


def render_plain(summary: Summary, *, step: int, top: int = 3, encoding: str = "utf-8") -> str:
    """Return the run so far in one line: means per recorded step, percentages of the step that add up to it."""
    if not summary.steps:
        return f"autoprof | step {step} | warming up"
    whole = max(summary.total_step_ns, 1)
    limit = summary.clock_limit_ns * summary.steps / whole
    phases = [(phase, ns / whole) for phase, ns in summary.phases.items() if ns]
    shares = [f"{phase.short} {format_round_percent(share, limit)} %" for phase, share in phases]
    parts = [f"autoprof | step {step}", format_ms(summary.step_mean_ns), " ".join(shares)]
    if summary.throughput is not None:
        parts.append(format_rate(summary.throughput, summary.throughput_unit))
    if summary.progress is not None and summary.progress.remaining_ns:
        parts.append(f"{format_span(summary.progress.remaining_ns)} left")
    if use := [*brief_work(summary.work), *brief_metrics(summary)]:
        parts.append(" ".join(use))
    names = top_lines(name_lines(summary), top, summary.total_step_ns, summary.clock_limit_ns)
    if names:
        named = [(bar.name, format_round_percent(bar.total_ns / whole, bar.limit_ns / whole)) for bar in names]
        parts.append("top " + ", ".join(f"{name} {share} %" for name, share in named))
    parts.append(f"overhead {100 * summary.overhead:.2f} %")
    return safe(" | ".join(parts), encoding)
