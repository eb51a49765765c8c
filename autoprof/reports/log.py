"""The readable log of steps. A step's Total is the length of the step; names, self and other add up to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from ..base.frame import UNTIMED_LANE, StepFrame
from ..base.summary import Summary
from ..base.units import NS_PER_MS, above, format_bytes, format_percent
from .memory_text import readings
from .name_tree import NameAverages, NameNode, name_tree
from .summary_text import render_summary
from .text import elide, pad, safe

RULE: Final = "=" * 80
LABEL: Final = 40
"""Cells of a name with its indentation; longer names move the numbers to the right, up to ``LABEL_MAX`` cells."""
LABEL_MAX: Final = 72

SUM_OF_PARTS: Final = " (sum of parts)"


def render_step(frame: StepFrame, averages: NameAverages, clock_limit_ns: int = 0) -> str:
    """Return one step's section and count a recorded step in ``averages``; warm-up steps are not counted.

    Siblings are in descending order of time and, with ``self``, add up to their parent; the top level, with ``other``,
    adds up to Total. All percentages are of the step. Times below ``clock_limit_ns`` a span are shown as ``<``.
    """
    averages.count(frame)
    step = _StepLines(frame, averages.of(frame.layout), clock_limit_ns)
    covered_ns = step.write(step.tree.roots)
    step.write_rest("other", 0, frame.step_ns - covered_ns)
    total = f"Total{'-' * (LABEL - 5)}: {frame.step_ns / NS_PER_MS:10.3f}ms"
    step.lines += ["", total, ""]
    if step.tree.separate:
        step.lines.append("Not part of the step's time (other threads, logged durations):")
        step.write(step.tree.separate)
        step.lines.append("")
    warmup = " (warm-up, excluded from averages)" if frame.warmup else ""
    head = [RULE, f"Step {frame.step}{warmup}", RULE]
    return "\n".join([*head, *step.lines, _facts(frame, clock_limit_ns), "", ""])


class _StepLines:
    """The lines of one step's tree."""

    def __init__(self, frame: StepFrame, averages: Sequence[float | None], limit_ns: int) -> None:
        self.lines: list[str] = []
        self.tree = name_tree(frame.layout)
        self._totals_ns: list[int] = self.tree.totals_ns(frame.total_ns).tolist()
        self._averages = averages
        self._limit_ns = limit_ns
        self._percent = 100 / frame.step_ns if frame.step_ns else 0.0

    def write(self, siblings: Iterable[NameNode]) -> int:
        """Append the lines of these nodes and all below; return their time."""
        covered = 0
        for node in sorted(siblings, key=lambda node: -self._totals_ns[node.index]):
            total, average, depth = self._totals_ns[node.index], self._averages[node.index], len(node.path)
            covered += total
            limit_ns = node.calls * self._limit_ns
            text = self._numbers(name_cells(node.label, depth - 1), total, limit_ns)
            mean = "" if average is None else f" [avg: {_ms(average, limit_ns):>10}ms]"
            self.lines.append(f"{text}{mean}{SUM_OF_PARTS if node.is_header else ''}")
            if node.children:
                rest = total - self.write(node.children.values())
                if rest and not node.is_header:
                    self.write_rest("self", depth, rest)
        return covered

    def write_rest(self, name: str, depth: int, ns: int) -> None:
        """Append a line without an average: the rest of a name or of the step."""
        self.lines.append(self._numbers(name_cells(name, depth), ns, self._limit_ns if ns > 0 else 0))

    def _numbers(self, head: str, ns: int, limit_ns: int) -> str:
        share = f"<{above(limit_ns * self._percent, 1)}" if ns < limit_ns else f"{ns * self._percent:.1f}"
        return f"{head}: {_ms(ns, limit_ns):>10}ms ({share:>5}%)"


def _ms(ns: float, limit_ns: float) -> str:
    return f"<{above(limit_ns / NS_PER_MS, 3)}" if ns < limit_ns else f"{ns / NS_PER_MS:.3f}"


@lru_cache(maxsize=8192)
def name_cells(name: str, depth: int) -> str:
    """Return a name with its indentation, padded to the column of the numbers."""
    indent = "  " * depth + ("- " if depth else "")
    return pad(elide(indent + safe(name), LABEL_MAX), LABEL)


def _facts(frame: StepFrame, clock_limit_ns: int) -> str:
    """Return the shares of the phases, the scalars, memory and overhead of a step."""
    step_ns = frame.step_ns or 1
    limit = clock_limit_ns / step_ns
    facts = [
        " ".join([f"{phase} {format_percent(ns / step_ns, limit)}" for phase, ns in frame.phase_ns().items() if ns])
    ]
    if frame.scalars:
        facts.append(" ".join([f"{name}={_scalar(name, value)}" for name, value in frame.scalars.items()]))
    if frame.memory:
        facts.append(" ".join(readings(frame.memory)))
    facts.append(f"autoprof {format_percent(frame.overhead_ns / max(frame.duration_ns, 1))}")
    if frame.dropped:
        facts.append(f"dropped {frame.dropped}")
    if untimed := frame.layout.lanes.count(UNTIMED_LANE):
        facts.append(f"without a device time {untimed}")
    return safe(" | ".join(facts))


def _scalar(name: str, value: float) -> str:
    return format_bytes(value).replace(" ", "") if name.endswith("_bytes") else f"{value:.6g}"


def render_log_summary(summary: Summary) -> str:
    """Return the section at the end: the full report."""
    head = [RULE, f"Timing Summary (Total {summary.steps} steps)", RULE]
    return "\n".join([*head, *render_summary(summary), ""])
