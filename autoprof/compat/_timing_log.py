"""The text of a timing logger's file, in the form that users' scripts read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..base.frame import Phase, StepFrame
from ..base.stats.name_lines import name_lines, walk
from ..base.summary import Summary
from ..base.units import NS_PER_MS, format_percent
from ..reports.log import LABEL, RULE, SUM_OF_PARTS, name_cells
from ..reports.name_tree import NameAverages, NameNode, name_tree
from ..reports.text import fit

NUMBERS_WIDTH: Final = len(": avg= 1805.28ms  min= 1799.99ms  max= 1805.28ms  (n=1000)")


def render_timing_step(frame: StepFrame, averages: NameAverages, covered_ns: int) -> str:
    """Return the section of a step: names in descending order, parts indented, percentages of the step.

    ``Total`` is the step, ``other`` its time without a name. Names without a slash between them may overlap.
    """
    tree = name_tree(frame.layout)
    averages.count(frame)
    totals_ns = tree.totals_ns(frame.total_ns).tolist()
    lines = ["", RULE, f"Step {frame.step}", RULE]
    _add_names(lines, tree.separate, totals_ns, averages.of(frame.layout), frame.step_ns)
    lines.append(f"{name_cells('other', 0)}: {_share(frame.step_ns - covered_ns, frame.step_ns)}")
    return "\n".join([*lines, "", f"Total{'-' * (LABEL - 5)}: {_ms(frame.step_ns)}", ""])


def _add_names(
    lines: list[str],
    siblings: Iterable[NameNode],
    values_ns: list[int],
    averages: list[float | None],
    step_ns: int,
) -> None:
    for node in sorted(siblings, key=lambda node: -values_ns[node.index]):
        ns, average, depth = values_ns[node.index], averages[node.index], len(node.path) - 1
        mean = "" if average is None else f" [avg: {_ms(average)}]"
        suffix = SUM_OF_PARTS if node.is_header else ""
        value = _ms(ns) if depth else _share(ns, step_ns)
        lines.append(f"{name_cells(node.label, depth)}: {value}{mean}{suffix}")
        _add_names(lines, node.children.values(), values_ns, averages, step_ns)


def render_timing_summary(summary: Summary, name_width: int = LABEL) -> list[str]:
    """Return the summary: average, minimum and maximum per step of each name, and the steps in which it occurred."""
    lines = [RULE, f"Timing Summary (Total {summary.steps} steps)", RULE]
    roots, separate = name_lines(summary)
    for line, depth, name in (*walk(roots), *walk(separate)):
        row = line.rows[0]
        calls = f"  calls={row.calls}" if row.calls != row.steps else ""
        label = fit(name_cells(name, depth).rstrip(), name_width) if name_width < LABEL else name_cells(name, depth)
        lines.append(_statistics(label, (row.mean_ns, row.min_ns, row.max_ns), row.steps) + calls)
    if summary.steps:
        other_ns = summary.phases[Phase.OTHER]
        mean_ms, share = other_ns / summary.steps / NS_PER_MS, other_ns / summary.total_step_ns
        lines.append(f"{fit('other', name_width)}: avg={mean_ms:>7.2f}ms  ({format_percent(share)} of Total)")
        times = summary.step_mean_ns, summary.step_min_ns, summary.step_max_ns
        lines += ["", _statistics(f"Total{'-' * (name_width - 5)}", times, summary.steps)]
    lines += [f"dropped: {count} {reason}" for reason, count in {**summary.dropped, **summary.skipped}.items()]
    return [*lines, RULE]


def _statistics(label: str, times_ns: tuple[int, int, int], steps: int) -> str:
    mean, least, most = (f"{ns / NS_PER_MS:>7.2f}ms" for ns in times_ns)
    return f"{label}: avg={mean}  min={least}  max={most}  (n={steps})"


def _ms(ns: float) -> str:
    return f"{ns / NS_PER_MS:>8.2f}ms"


def _share(ns: int, step_ns: int) -> str:
    return f"{_ms(ns)} ({100 * ns / step_ns if step_ns else 0.0:5.1f}%)"
