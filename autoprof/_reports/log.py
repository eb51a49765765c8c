"""The readable log of steps. A step's Total is the length of the step; names, self and other add up to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from .._stats.self_times import phase_sums
from .._units import NS_PER_MS, above, format_bytes, format_percent
from ..frame import LOGGED_LANE, UNTIMED_LANE, Nanoseconds, StepFrame
from ..summary import Summary
from .measurements import measured_lines, overhead_text
from .memory_text import readings
from .name_averages import NameAverages
from .name_lines import name_lines, walk
from .name_tree import NameTree, name_tree
from .shapes import render_shape_changes
from .text import elide, pad, printable, safe

RULE: Final = "=" * 80
LABEL: Final = 40
"""Cells of a name with its indentation; longer names move the numbers to the right, up to ``LABEL_MAX`` cells."""
LABEL_MAX: Final = 72

_TOTAL: Final = f"Total{'-' * (LABEL - 5)}"

_LINE: Final = "%s: %10.3fms (%5.1f%%) [avg: %10.3fms]"
_LINE_WITHOUT_AVERAGE: Final = "%s: %10.3fms (%5.1f%%)"
SUM_OF_PARTS: Final = " (sum of parts)"
HOST_BOUND: Final = " host-bound"
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
    (facts,) = render_facts([frame], clock_limit_ns)
    return render_section(frame, clock_limit_ns, facts, values, averages.of(frame.layout, tree))


def render_section(
    frame: StepFrame, clock_limit_ns: int, facts: str, values: Nanoseconds, averages: Sequence[float | None]
) -> str:
    """Return a step's section; ``values`` and ``averages`` have a row for each node of its tree of names."""
    tree = name_tree(frame.layout)
    section = StepTree(tree, values, averages, frame.step_ns, clock_limit_ns)
    host_bound_ns = shown_host_bound_ns(frame)
    if host_bound_ns is not None:
        section.host_bound_ns = tree.values_ns(host_bound_ns)[:, 0].tolist()
    lines: list[str] = []
    covered = section.write(tree.children[0], lines)
    separate: list[str] = []
    if tree.separate:
        section.write(tree.separate, separate)
    below = "\n".join([*separate, ""]) if separate else ""
    return frame_section(frame, clock_limit_ns, covered, "\n".join([*lines, ""]), below, facts)


def shown_host_bound_ns(frame: StepFrame) -> Nanoseconds | None:
    """Return the time in which the device waited for the host; None where host times are shown."""
    if frame.host_bound_ns is None or frame.device_duration_ns is None:
        return None
    return frame.host_bound_ns.clip(min=0)


def frame_section(frame: StepFrame, clock_limit_ns: int, covered_ns: int, tree: str, separate: str, facts: str) -> str:
    """Return a section: the lines of the tree between its title, the rest of the step and the facts."""
    step_ns = frame.step_ns
    other = plain_line("other", 0, step_ns - covered_ns, _percent_of(step_ns), clock_limit_ns)
    warmup = " (warm-up, excluded from averages)" if frame.warmup else ""
    if separate:
        separate = f"\nNot part of the step's time (other threads, logged durations):\n{separate}"
    if frame.shapes:
        facts = "\n".join([*render_shape_changes(frame), facts])
    total = f"{_TOTAL}: {step_ns / NS_PER_MS:10.3f}ms"
    return f"{RULE}\nStep {frame.step}{warmup}\n{RULE}\n{tree}{other}\n\n{total}\n{separate}\n{facts}\n\n"


class StepTree:
    """The lines of one step's tree."""

    __slots__ = ("_averages", "_limit_ns", "_ns_percent", "_tree", "_values", "host_bound_ns")

    def __init__(
        self, tree: NameTree, values: Nanoseconds, averages: Sequence[float | None], step_ns: int, limit_ns: int
    ) -> None:
        self._tree = tree
        self._values: list[list[int]] = values.tolist()
        self._averages = averages
        self.host_bound_ns: list[int] | None = None
        self._limit_ns = limit_ns
        self._ns_percent = _percent_of(step_ns)

    def write(self, siblings: list[int], lines: list[str]) -> int:
        """Append the lines of these nodes and all below; return their time."""
        values, nodes, children = self._values, self._tree.nodes, self._tree.children
        covered = 0
        for index in sorted(siblings, key=lambda index: -values[index][0]) if len(siblings) > 1 else siblings:
            total, node = values[index][0], nodes[index]
            covered += total
            lines.append(self.line(index))
            below = children[index + 1]
            if below:
                rest = total - self.write(below, lines)
                if rest and not node.is_header:
                    lines.append(self.plain("self", node.depth + 1, rest))
        return covered

    def line(self, index: int) -> str:
        """Return the line of one node."""
        total, node, average = self._values[index][0], self._tree.nodes[index], self._averages[index]
        head = name_cells(node.label, node.depth)
        limit_ns = node.calls * self._limit_ns
        if total < limit_ns or (average is not None and average < limit_ns):
            text = _below(head, total, average, self._ns_percent, limit_ns)
        else:
            numbers = (head, total / NS_PER_MS, total * self._ns_percent)
            text = _LINE_WITHOUT_AVERAGE % numbers if average is None else _LINE % (*numbers, average / NS_PER_MS)
        text += SUM_OF_PARTS if node.is_header else _split(self._values[index], limit_ns)
        if self.host_bound_ns is not None and not node.is_header and 2 * self.host_bound_ns[index] > total:
            text += HOST_BOUND
        return text

    def plain(self, name: str, depth: int, ns: int) -> str:
        """Return a line without an average: the rest of a name or of the step."""
        return plain_line(name, depth, ns, self._ns_percent, self._limit_ns)


def plain_line(name: str, depth: int, ns: int, ns_percent: float, limit_ns: int) -> str:
    """Return a line without an average; ``ns_percent`` is a nanosecond in per cent of the step."""
    if 0 < ns < limit_ns:
        return _below(name_cells(name, depth), ns, None, ns_percent, limit_ns)
    return _LINE_WITHOUT_AVERAGE % (name_cells(name, depth), ns / NS_PER_MS, ns * ns_percent)


def _below(head: str, ns: int, average: float | None, ns_percent: float, limit_ns: int) -> str:
    """Return a line whose time or average is below the resolution of the clock."""
    share = f"<{above(limit_ns * ns_percent, 1)}" if ns < limit_ns else f"{ns * ns_percent:.1f}"
    numbers = (head, f"{_ms(ns, limit_ns):>10}", f"{share:>5}")
    if average is None:
        return _TEXT_LINE_WITHOUT_AVERAGE % numbers
    return _TEXT_LINE % (*numbers, f"{_ms(average, limit_ns):>10}")


def _percent_of(step_ns: int) -> float:
    return 100 / step_ns if step_ns else 0.0


def _ms(ns: float, limit_ns: float) -> str:
    return f"<{above(limit_ns / NS_PER_MS, 3)}" if ns < limit_ns else f"{ns / NS_PER_MS:.3f}"


@lru_cache(maxsize=8192)
def name_cells(name: str, depth: int) -> str:
    """Return a name with its indentation, padded to the column of the numbers."""
    indent = "  " * depth + ("- " if depth else "")
    return pad(elide(indent + safe(name), LABEL_MAX), LABEL)


def _split(values: list[int], limit_ns: int) -> str:
    _, forward, recompute, backward = values
    if not backward:
        return " fwd" if forward else ""
    middle = f" rec {_ms(recompute, limit_ns)}" if recompute else ""
    return f" fwd {_ms(forward, limit_ns if forward else 0)}{middle} bwd {_ms(backward, limit_ns)}"


def render_facts(frames: Sequence[StepFrame], clock_limit_ns: int) -> list[str]:
    """Return for each step the shares of its phases, its scalars, memory and overhead.

    The steps share a layout and the phases of the model's own time.
    """
    layout = frames[0].layout
    sums = phase_sums(layout, tuple(frames[0].model_ns))
    names = [phase._value_ for phase in sums.phases]
    untimed = layout.lanes.count(UNTIMED_LANE)
    texts = []
    for frame, phases_ns in zip(frames, sums.of(frames), strict=True):
        step_ns = frame.step_ns or 1
        limit = clock_limit_ns / step_ns
        shares = [
            f"{name} {format_percent(ns / step_ns, limit)}" for name, ns in zip(names, phases_ns, strict=True) if ns
        ]
        facts = [" ".join(shares)]
        if frame.scalars:
            facts.append(" ".join([f"{name}={_scalar(name, value)}" for name, value in frame.scalars.items()]))
        if frame.memory:
            facts.append(" ".join(readings(frame.memory)))
        facts.append(f"autoprof {format_percent(frame.overhead_ns / max(frame.duration_ns, 1))}")
        if frame.dropped:
            facts.append(f"dropped {frame.dropped}")
        if untimed:
            facts.append(f"without a device time {untimed}")
        texts.append(printable(" | ".join(facts)))
    return texts


def _scalar(name: str, value: float) -> str:
    return format_bytes(value).replace(" ", "") if name.endswith("_bytes") else f"{value:.6g}"


def render_log_summary(summary: Summary) -> str:
    """Return the section at the end: avg, min, max and n of every name and phase, over the recorded steps."""
    warmup = f", {summary.warmup_steps} warm-up steps excluded" if summary.warmup_steps else ""
    lines = [RULE, f"Timing Summary (Total {summary.steps} steps{warmup})", RULE]
    grouped = name_lines(summary)
    for line, depth, name in (*walk(grouped.roots), *walk(grouped.separate)):
        for row in line.rows:
            head = name_cells(f"{name} {row.phase}" if len(line.rows) > 1 else name, depth)
            limit_ns = 0 if row.lane == LOGGED_LANE else row.calls / row.steps * summary.clock_limit_ns
            times = (row.mean_ns, row.min_ns, row.max_ns, row.p50_ns, row.p95_ns)
            lines.append(_numbers(head, times, row.steps, limit_ns))
    if summary.steps:
        step = (summary.step_mean_ns, summary.step_min_ns, summary.step_max_ns)
        times = (*step, summary.step_p50_ns, summary.step_p95_ns)
        lines.append(_numbers(name_cells("Total", 0), times, summary.steps, summary.clock_limit_ns))
    lines += ["", f"autoprof: {overhead_text(summary)}"]
    lines += ["", *measured_lines(summary, 120)]
    lines += ["", "A name includes the names indented below it; the top level and other add up to Total.", ""]
    return "\n".join(lines)


def _numbers(head: str, times_ns: tuple[int, int, int, int, int], steps: int, limit_ns: float) -> str:
    mean, least, most, p50, p95 = (_ms(ns, limit_ns) for ns in times_ns)
    return f"{head}: avg={mean:>10}ms  min={least:>10}ms  max={most:>10}ms  (n={steps})  p50={p50}ms  p95={p95}ms"
