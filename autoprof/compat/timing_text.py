"""The timing logger's own texts: a section a step, and the summary, in the form that its users' scripts read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .._reports.log import LABEL, LABEL_MAX, RULE, Averages
from .._reports.text import elide, fit, pad, safe
from .._stats.name_lines import name_lines, walk
from .._stats.name_tree import NameTree, name_tree
from .._units import NS_PER_MS, format_percent
from ..frame import Phase, StepFrame
from ..summary import Summary

NUMBERS: Final = len(": avg= 1805.28ms  min= 1799.99ms  max= 1805.28ms  (n=1000)")
NARROWEST: Final = 16
HALF: Final = 0.5
HEADER: Final = " (sum of parts)"
"""Behind a name that nobody logged, only names below it."""


def render_timing_step(frame: StepFrame, averages: Averages, covered_ns: int, parents: Mapping[str, str | None]) -> str:
    """Return a step's section: names in descending order, names below them indented, percentages of the step.

    ``Total`` is the step. What no name covers is ``other``; a name that ran inside another says so, for its time is
    not beside the other's.
    """
    tree = name_tree(frame.layout)
    values_ns = tree.values_ns(frame.total_ns)[:, 0]
    averages.add(frame.layout, tree, values_ns)
    section = _Section(tree, values_ns.tolist(), averages.of(frame.layout, tree), frame.step_ns, parents)
    lines = ["", RULE, f"Step {frame.step}", RULE]
    section.write(tree.beside, lines)
    other_ns = frame.step_ns - covered_ns
    if other_ns >= 0.005 * NS_PER_MS:
        lines.append(f"{_head('other', 0)}: {_ms(other_ns)} ({_percent(other_ns, frame.step_ns)})")
    return "\n".join([*lines, "", f"Total{'-' * (LABEL - 5)}: {_ms(frame.step_ns)}", ""])


class _Section:
    """The lines of one step's names."""

    def __init__(
        self,
        tree: NameTree,
        values_ns: list[int],
        averages: list[float | None],
        step_ns: int,
        parents: Mapping[str, str | None],
    ) -> None:
        self._tree = tree
        self._values_ns = values_ns
        self._averages = averages
        self._step_ns = step_ns
        self._parents = parents

    def write(self, siblings: list[int], lines: list[str]) -> None:
        for index in sorted(siblings, key=lambda index: -self._values_ns[index]):
            node, ns, average = self._tree.nodes[index], self._values_ns[index], self._averages[index]
            share = f" ({_percent(ns, self._step_ns)})" if not node.depth else ""
            mean = "" if average is None else f" [avg: {_ms(average)}]"
            around = self._parents.get(node.path[-1]) if not node.depth else None
            behind = HEADER if node.is_header else f" in {safe(around)}" if around else ""
            lines.append(f"{_head(node.label, node.depth)}: {_ms(ns)}{share}{mean}{behind}")
            self.write(self._tree.children[index + 1], lines)


def render_timing_summary(summary: Summary, width: int = LABEL + NUMBERS) -> list[str]:
    """Return the summary at the end: mean, least and most of a step in which the name occurred, and how many did.

    Where ``width`` cells are less than the form has, names lose their middle, down to ``NARROWEST`` cells.
    """
    room = min(max(width - NUMBERS, NARROWEST), LABEL)
    lines = [RULE, f"Timing Summary (Total {summary.steps} steps)", RULE]
    grouped = name_lines(summary)
    for line, depth, name in (*walk(grouped.roots), *walk(grouped.beside)):
        row = line.rows[0]
        calls = f"  calls={row.calls}" if row.calls != row.steps else ""
        head = _head(name, depth) if room == LABEL else fit(_head(name, depth).rstrip(), room)
        lines.append(_spread(head, (row.mean_ns, row.min_ns, row.max_ns), row.steps) + calls)
    lines += _unnamed(summary, room)
    if summary.steps:
        times = summary.step_mean_ns, summary.step_min_ns, summary.step_max_ns
        lines += ["", _spread(f"Total{'-' * (room - 5)}", times, summary.steps)]
    lines += [f"dropped: {count} {reason}" for reason, count in {**summary.dropped, **summary.skipped}.items()]
    return [*lines, RULE]


def _unnamed(summary: Summary, room: int) -> list[str]:
    """Say how much of the step no name covers; where that is most of it, what to do."""
    other_ns = summary.phases.get(Phase.OTHER, 0)
    if not summary.steps or other_ns < 0.005 * NS_PER_MS * summary.steps:
        return []
    share = other_ns / summary.total_step_ns
    mean_ms = other_ns / summary.steps / NS_PER_MS
    lines = [f"{pad('other', room)}: avg={mean_ms:>7.2f}ms  ({format_percent(share)} of Total)"]
    if share > HALF:
        lines.append("Most of the step has no name yet: log backward, optimizer and loading as well,")
        lines.append("or let autoprof.instrument(model) time them.")
    return lines


def _spread(head: str, times_ns: tuple[int, int, int], steps: int) -> str:
    mean, least, most = (f"{ns / NS_PER_MS:>7.2f}ms" for ns in times_ns)
    return f"{head}: avg={mean}  min={least}  max={most}  (n={steps})"


def _head(name: str, depth: int) -> str:
    return pad(elide("  " * depth + ("- " if depth else "") + safe(name), LABEL_MAX), LABEL)


def _ms(ns: float) -> str:
    return f"{ns / NS_PER_MS:>8.2f}ms"


def _percent(ns: int, step_ns: int) -> str:
    return f"{100 * ns / step_ns if step_ns else 0.0:5.1f}%"
