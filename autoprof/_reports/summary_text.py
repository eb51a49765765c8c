"""The full report of a run: ``summary.txt`` and ``autoprof show --full``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .._units import count, format_ms, format_ns, format_percent
from ..frame import TRAINING_LANE, Phase
from ..summary import Summary, format_counts
from .card import render_findings, render_outlook
from .comm_text import render_communication
from .experts_text import render_experts
from .hot_tree import hot_tree, separate_tree
from .measurements import measured_lines, overhead_text, work_table
from .memory_text import readings, render_memory
from .run_facts import NOTHING, bias_text, excluded_share, format_time, headline
from .shapes import render_shapes
from .table import render_rows
from .text import crop, glyphs_for, safe, wrap
from .tree_text import name_cells, render_tree

NARROWEST: Final = 80
NAMES: Final = 24
"""Names shown; the others are counted in one line."""

SPREAD: Final = 8
"""Names × phases whose distribution is shown."""

_ADDS_UP: Final = (
    "Means per recorded step; percentages are of the step. The phases add up to the",
    "step exactly, and so do the names at the left edge together with other. A name",
    "includes the names indented below it. The column backward excludes recompute;",
    "under longest, backward includes the recompute in it.",
)


def render_summary(summary: Summary, *, width: int = NARROWEST, top: int = NAMES, encoding: str = "utf-8") -> list[str]:
    """Return the full report, no line wider than ``width`` cells (at least 80)."""
    width = max(width, NARROWEST)
    glyphs = glyphs_for(encoding)
    blocks = [[headline(summary), *render_findings(summary, width=width)]]
    if summary.steps:
        blocks += [[*_names(summary, width, top, encoding)], [*_phases(summary, glyphs.full)]]
    else:
        blocks[0] += wrap("", NOTHING, width, 0)
    blocks.append([*_facts(summary, width)])
    if summary.steps:
        blocks += [_spread(summary, width, encoding), [*_ADDS_UP]]
        blocks.append([*work_table(summary.work, width, glyphs.ellipsis)])
    blocks.append(render_communication(summary, width=width, encoding=encoding))
    blocks.append(render_experts(summary, width=width, encoding=encoding))
    blocks.append(render_memory(summary, width=width, ellipsis=glyphs.ellipsis))
    blocks.append(render_shapes(summary, width))
    blocks += render_outlook(summary, width=width)
    text = [line for at, block in enumerate(filter(None, blocks)) for line in (["", *block] if at else block)]
    lines = [glyphs.rule * width, *text, glyphs.rule * width]
    return [crop(safe(line, encoding), width).rstrip() for line in lines]


def _facts(summary: Summary, width: int) -> Iterator[str]:
    if summary.steps:
        times = (
            ("mean", summary.step_mean_ns),
            ("p50", summary.step_p50_ns),
            ("p95", summary.step_p95_ns),
            ("min", summary.step_min_ns),
            ("max", summary.step_max_ns),
        )
        phrased = [f"{word} {format_time(ns)}" for word, ns in times]
        yield f"step       recorded steps: {', '.join(phrased[:3])}"
        yield "           " + ", ".join(phrased[3:])
        if summary.unsampled_ns and summary.unsampled_steps:
            yield from wrap("", _unsampled(summary), width, room=11)
        yield from measured_lines(summary, width)
    if (summary.micro_steps or 0) > 1:
        yield f"accumulate {summary.micro_steps} micro-batches per optimizer step"
    if summary.loader.get("fetches"):
        workers, fetches, unready = (summary.loader[key] for key in ("workers", "fetches", "unready"))
        yield f"loader     {unready} of {fetches} fetches found no batch ready (num_workers={workers})"
    for one in summary.excluded:
        often = f"{count(one.calls, 'time')}, " if one.calls > 1 else ""
        yield f"excluded   {one.kind}: {often}{format_ms(one.total_ns)}{excluded_share(summary, one)}; in no step"
    if summary.memory:
        yield from wrap("memory", ", ".join(readings(summary.memory)), width, room=11)
    if summary.steps:
        yield f"overhead   {overhead_text(summary)}"
    if summary.clock_limit_ns:
        yield f"clock      cannot resolve spans below {format_ns(summary.clock_limit_ns)}: they are shown as <"
    for word, reasons in (("dropped", summary.dropped), ("skipped", summary.skipped)):
        yield from wrap(word, format_counts(reasons) if reasons else "nothing", width, room=11)
    for note in summary.notes:
        yield from wrap("note", note, width, room=11)


def _unsampled(summary: Summary) -> str:
    line = f"unsampled steps: mean {format_time(summary.unsampled_ns / summary.unsampled_steps)}"
    bias = bias_text(summary)
    return line if bias is None else f"{line}; {bias}"


def _phases(summary: Summary, full: str) -> Iterator[str]:
    whole = max(summary.total_step_ns, 1)
    yield f"{'phase':<12}{'per step':>14}{'share':>9}"
    for phase, ns in summary.phases.items():
        if ns or phase is Phase.OTHER:
            bar = "  " + full * round(40 * min(max(ns / whole, 0.0), 1.0))
            yield _phase(str(phase), ns, whole, summary.steps, summary.clock_limit_ns) + bar
    yield _phase("step", summary.total_step_ns, whole, summary.steps, summary.clock_limit_ns)


def _phase(name: str, ns: int, whole: int, steps: int, limit_ns: int) -> str:
    share = format_percent(ns / whole, limit_ns * steps / whole)
    return f"{name:<12}{format_ms(ns / steps, limit_ns if ns else 0):>14}{share:>9}"


def _names(summary: Summary, width: int, top: int, encoding: str) -> Iterator[str]:
    room = name_cells(summary, width, calls=True)
    tree, separate = hot_tree(summary, top, room), separate_tree(summary, top, room)
    yield from render_tree(tree, summary, width, encoding, calls=True)
    if not any(row.steps for row in tree.rows):
        yield "no span was recorded: the whole step is other"
    if separate.rows:
        yield ""
        yield "not part of the step's time (other threads, logged durations)"
        yield from render_tree(separate, summary, width, encoding, calls=True)[1:]


def _spread(summary: Summary, width: int, encoding: str) -> list[str]:
    rows = [row for row in summary.rows if row.lane == TRAINING_LANE][:SPREAD]
    if not rows:
        return []
    names, numbers = ["longest"], [["mean", "p50", "p95", "max"]]
    for row in rows:
        names.append(safe(row.name if row.phase.value == row.name else f"{row.name} {row.phase}", encoding))
        limit_ns = row.calls / row.steps * summary.clock_limit_ns
        numbers.append([format_ms(ns, limit_ns) for ns in (row.mean_ns, row.p50_ns, row.p95_ns, row.max_ns)])
    return render_rows(names, numbers, width, least=(12, 12, 12, 12), ellipsis=glyphs_for(encoding).ellipsis)
