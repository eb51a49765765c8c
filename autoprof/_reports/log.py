"""The readable log of steps. A step's Total is the length of the step; names, self and other add up to it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from .._stats.name_averages import NameAverages
from .._stats.name_lines import name_lines, walk
from .._stats.name_tree import NameTree, name_tree
from .._units import NS_PER_MS, above, format_bytes, format_percent
from ..frame import LOGGED_LANE, UNTIMED_LANE, Nanoseconds, StepFrame
from ..summary import Summary
from .measurements import measured_lines, overhead_lines
from .memory_text import readings
from .shapes import render_shape_changes
from .text import elide, pad, printable, safe

RULE: Final = "=" * 80
LABEL: Final = 40
"""Cells of a name with its indentation; longer names move the numbers to the right, up to ``LABEL_MAX`` cells."""
LABEL_MAX: Final = 72

_LINE: Final = "%s: %10.3fms (%5.1f%%) [avg: %10.3fms]"
_LINE_WITHOUT_AVERAGE: Final = "%s: %10.3fms (%5.1f%%)"
_TEXT_LINE: Final = "%s: %sms (%s%%) [avg: %sms]"
_TEXT_LINE_WITHOUT_AVERAGE: Final = "%s: %sms (%s%%)"


def render_step(frame: StepFrame, averages: NameAverages, clock_limit_ns: int = 0) -> str:
    """Return one step's section and count a recorded step in ``averages``; warm-up steps are not counted.

    Siblings are in descending order of time and, with ``self``, add up to their parent; the top level, with ``other``,
    adds up to Total. All percentages are of the step. Times below ``clock_limit_ns`` a span are shown as ``<``.
    """
    tree = name_tree(frame.layout)
    values = tree.values_ns(frame.total_ns)
    if not frame.warmup:
        averages.add(frame.layout, tree, values[:, 0])
    step_ns = frame.step_ns
    section = _StepTree(tree, values, averages.of(frame.layout, tree), step_ns, clock_limit_ns)
    if frame.host_bound_ns is not None and frame.device_duration_ns is not None:
        section.host_bound_ns = tree.values_ns(frame.host_bound_ns.clip(min=0))[:, 0].tolist()
    lines = [RULE, f"Step {frame.step}{' (warm-up, excluded from averages)' if frame.warmup else ''}", RULE]
    covered = section.write(tree.children[0], lines)
    lines.append(section.plain("other", 0, step_ns - covered))
    lines += ["", f"Total{'-' * (LABEL - 5)}: {step_ns / NS_PER_MS:10.3f}ms"]
    if tree.separate:
        lines += ["", "Not part of the step's time (other threads, logged durations):"]
        section.write(tree.separate, lines)
    lines += ["", *render_shape_changes(frame), _facts(frame, clock_limit_ns), ""]
    return "\n".join(lines) + "\n"


class _StepTree:
    """The lines of one step's tree."""

    __slots__ = ("_averages", "_limit_ns", "_ns_percent", "_tree", "_values", "host_bound_ns")

    def __init__(
        self, tree: NameTree, values: Nanoseconds, averages: list[float | None], step_ns: int, limit_ns: int
    ) -> None:
        self._tree = tree
        self._values: list[list[int]] = values.tolist()
        self._averages = averages
        self.host_bound_ns: list[int] | None = None
        self._limit_ns = limit_ns
        self._ns_percent = 100 / step_ns if step_ns else 0.0

    def write(self, siblings: list[int], lines: list[str]) -> int:
        """Append the lines of these nodes and all below; return their time."""
        values, nodes, children, averages = self._values, self._tree.nodes, self._tree.children, self._averages
        covered = 0
        for index in sorted(siblings, key=lambda index: -values[index][0]) if len(siblings) > 1 else siblings:
            total, node, average = values[index][0], nodes[index], averages[index]
            covered += total
            head = _head(node.label, node.depth)
            limit_ns = node.calls * self._limit_ns
            if total < limit_ns or (average is not None and average < limit_ns):
                text = self._below(head, total, average, limit_ns)
            else:
                numbers = (head, total / NS_PER_MS, total * self._ns_percent)
                text = _LINE_WITHOUT_AVERAGE % numbers if average is None else _LINE % (*numbers, average / NS_PER_MS)
            text += " (sum of parts)" if node.is_header else _split(values[index], limit_ns)
            if self.host_bound_ns is not None and not node.is_header and 2 * self.host_bound_ns[index] > total:
                text += " host-bound"
            lines.append(text)
            below = children[index + 1]
            if below:
                rest = total - self.write(below, lines)
                if rest and not node.is_header:
                    lines.append(self.plain("self", node.depth + 1, rest))
        return covered

    def plain(self, name: str, depth: int, ns: int) -> str:
        """Return a line without an average: the rest of a name or of the step."""
        if 0 < ns < self._limit_ns:
            return self._below(_head(name, depth), ns, None, self._limit_ns)
        return _LINE_WITHOUT_AVERAGE % (_head(name, depth), ns / NS_PER_MS, ns * self._ns_percent)

    def _below(self, head: str, ns: int, average: float | None, limit_ns: int) -> str:
        """Return a line whose time or average is below the resolution of the clock."""
        limit = limit_ns * self._ns_percent
        share = f"<{above(limit, 1)}" if ns < limit_ns else f"{ns * self._ns_percent:.1f}"
        numbers = (head, f"{_ms(ns, limit_ns):>10}", f"{share:>5}")
        if average is None:
            return _TEXT_LINE_WITHOUT_AVERAGE % numbers
        return _TEXT_LINE % (*numbers, f"{_ms(average, limit_ns):>10}")


def _ms(ns: float, limit_ns: float) -> str:
    return f"<{above(limit_ns / NS_PER_MS, 3)}" if ns < limit_ns else f"{ns / NS_PER_MS:.3f}"


@lru_cache(maxsize=8192)
def _head(name: str, depth: int) -> str:
    indent = "  " * depth + ("- " if depth else "")
    return pad(elide(indent + safe(name), LABEL_MAX), LABEL)


def _split(values: list[int], limit_ns: int) -> str:
    _, forward, recompute, backward = values
    if not backward:
        return " fwd" if forward else ""
    middle = f" rec {_ms(recompute, limit_ns)}" if recompute else ""
    return f" fwd {_ms(forward, limit_ns if forward else 0)}{middle} bwd {_ms(backward, limit_ns)}"


def _facts(frame: StepFrame, limit_ns: int) -> str:
    """Return the step's phases, scalars and memory in one line."""
    step_ns = frame.step_ns or 1
    shares = [(phase, ns / step_ns) for phase, ns in frame.phase_ns().items() if ns]
    facts = [" ".join(f"{phase} {format_percent(share, limit_ns / step_ns)}" for phase, share in shares)]
    if frame.scalars:
        facts.append(" ".join(f"{name}={_scalar(name, value)}" for name, value in frame.scalars.items()))
    if frame.memory:
        facts.append(" ".join(readings(frame.memory)))
    facts.append(f"autoprof {format_percent(frame.overhead_ns / max(frame.duration_ns, 1))}")
    if frame.dropped:
        facts.append(f"dropped {frame.dropped}")
    untimed = frame.layout.lanes.count(UNTIMED_LANE)
    if untimed:
        facts.append(f"without a device time {untimed}")
    return printable(" | ".join(facts))


def _scalar(name: str, value: float) -> str:
    return format_bytes(value).replace(" ", "") if name.endswith("_bytes") else f"{value:.6g}"


def render_log_summary(summary: Summary) -> str:
    """Return the section at the end: avg, min, max and n of every name and phase, over the recorded steps."""
    warmup = f", {summary.warmup_steps} warm-up steps excluded" if summary.warmup_steps else ""
    lines = [RULE, f"Timing Summary (Total {summary.steps} steps{warmup})", RULE]
    grouped = name_lines(summary)
    for line, depth, name in (*walk(grouped.roots), *walk(grouped.separate)):
        for row in line.rows:
            head = _head(f"{name} {row.phase}" if len(line.rows) > 1 else name, depth)
            limit_ns = 0 if row.lane == LOGGED_LANE else row.calls / row.steps * summary.clock_limit_ns
            times = (row.mean_ns, row.min_ns, row.max_ns, row.p50_ns, row.p95_ns)
            lines.append(_numbers(head, times, row.steps, limit_ns))
    if summary.steps:
        step = (summary.step_mean_ns, summary.step_min_ns, summary.step_max_ns)
        times = (*step, summary.step_p50_ns, summary.step_p95_ns)
        lines.append(_numbers(_head("Total", 0), times, summary.steps, summary.clock_limit_ns))
    lines += ["", *(f"autoprof: {line}" for line in overhead_lines(summary))]
    lines += ["", *measured_lines(summary, 120)]
    lines += ["", "A name includes the names indented below it; the top level and other add up to Total.", ""]
    return "\n".join(lines)


def _numbers(head: str, times_ns: tuple[int, int, int, int, int], steps: int, limit_ns: float) -> str:
    mean, least, most, p50, p95 = (_ms(ns, limit_ns) for ns in times_ns)
    return f"{head}: avg={mean:>10}ms  min={least:>10}ms  max={most:>10}ms  (n={steps})  p50={p50}ms  p95={p95}ms"
