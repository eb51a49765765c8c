"""The report at the end of a run, on the terminal and in ``summary.txt``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .._stats.name_lines import Line, name_lines, walk
from .._units import format_count, format_ms, format_ns, format_percent
from ..frame import TRAINING_LANE, Phase
from ..summary import Summary, format_counts
from .card import render_card
from .measurements import measured_lines, overhead_lines, work_table
from .memory_text import readings, render_memory
from .shapes import render_shapes
from .text import HOST_BOUND, crop, fit, fit_marked, glyphs_for, safe, wrap

NARROWEST: Final = 80
NAMES: Final = 24
"""Names shown; the others are counted in one line."""

SPREAD: Final = 8
"""Names × phases whose distribution is shown."""

_NUMBERS: Final = f"{'calls':>6}{'per step':>12}{'share':>9}{'forward':>10}{'recompute':>10}{'backward':>10}"
_SPREAD: Final = f"{'mean':>12}{'p50':>12}{'p95':>12}{'max':>12}"
_ADDS_UP: Final = (
    "Means per recorded step; percentages are of the step. The phases add up to the",
    "step exactly, and so do the names at the left edge together with other. A name",
    "includes the names indented below it. The column backward excludes recompute;",
    "under longest, backward includes the recompute in it.",
)


def render_summary(summary: Summary, *, width: int = NARROWEST, top: int = NAMES, encoding: str = "utf-8") -> list[str]:
    """Return the report, no line wider than ``width`` cells (at least 80)."""
    width = max(width, NARROWEST)
    glyphs = glyphs_for(encoding)
    lines = [glyphs.rule * width, *_head(summary, width), ""]
    if summary.steps:
        lines += [*_phases(summary, glyphs.full), "", *_names(summary, width, top, glyphs.ellipsis)]
        lines += [*_spread(summary, width, glyphs.ellipsis), "", *_ADDS_UP]
        table = [*work_table(summary.work, width, glyphs.ellipsis)]
        lines += ["", *table] if table else []
        lines += [HOST_BOUND] if any(row.host_bound for row in summary.rows) else []
    memory = render_memory(summary, width=width, ellipsis=glyphs.ellipsis)
    lines += ["", *memory] if memory else []
    detail = render_shapes(summary, width)
    lines += ["", *detail] if detail else []
    card = render_card(summary, width=width)
    lines += ["", *card] if card else []
    lines.append(glyphs.rule * width)
    return [crop(safe(line, encoding), width).rstrip() for line in lines]


def _head(summary: Summary, width: int) -> Iterator[str]:
    uncounted = [
        f"{count} {word}"
        for count, word in ((summary.warmup_steps, "warm-up, excluded"), (summary.unsampled_steps, "not sampled"))
        if count
    ]
    recorded = f"autoprof: {summary.steps} steps on the {summary.clock}'s clock"
    yield f"{recorded} ({'; '.join(uncounted)})" if uncounted else recorded
    if not summary.steps:
        yield "nothing was recorded: no step ended after the warm-up"
        return
    times = (
        ("mean", summary.step_mean_ns),
        ("p50", summary.step_p50_ns),
        ("p95", summary.step_p95_ns),
        ("min", summary.step_min_ns),
        ("max", summary.step_max_ns),
    )
    phrased = [f"{word} {format_ms(ns)}" for word, ns in times]
    yield "step       " + ", ".join(phrased[:3])
    yield "           " + ", ".join(phrased[3:])
    if summary.unsampled_ns and summary.unsampled_steps:  # older versions saved only the second
        yield from wrap("", _unsampled(summary), width, room=11)
    yield from measured_lines(summary, width)
    if (summary.micro_steps or 0) > 1:
        yield f"accumulate {summary.micro_steps} micro-batches per optimizer step"
    if summary.loader:
        workers, fetches, unready = (summary.loader[key] for key in ("workers", "fetches", "unready"))
        yield f"loader     {unready} of {fetches} fetches found no batch ready (num_workers={workers})"
    for one in summary.excluded:
        often = f"{one.calls} times, " if one.calls > 1 else ""
        yield f"excluded   {one.name}: {often}{format_ms(one.total_ns)}, in no step"
    if summary.memory:
        yield from wrap("memory", ", ".join(readings(summary.memory)), width, room=11)
    own, paired = overhead_lines(summary)
    yield f"overhead   {own}"
    yield f"           {paired}"
    if summary.clock_limit_ns:
        yield f"clock      cannot resolve spans below {format_ns(summary.clock_limit_ns)}: they are shown as <"
    for word, reasons in (("dropped", summary.dropped), ("skipped", summary.skipped)):
        yield f"{word}    {format_counts(reasons) if reasons else 'nothing'}"
    for note in summary.notes:
        yield f"note       {note}"


def _unsampled(summary: Summary) -> str:
    line = f"unsampled steps: mean {format_ms(summary.unsampled_ns / summary.unsampled_steps)}"
    bias = summary.sampling_bias
    if bias is None:
        return line
    beyond = f"{format_percent(abs(bias))} {'longer' if bias > 0 else 'shorter'}, beyond the cost of recording"
    return f"{line}; recorded steps are {beyond}: their means do not represent all steps"


def _phases(summary: Summary, full: str) -> Iterator[str]:
    whole = max(summary.total_step_ns, 1)
    yield f"{'phase':<12}{'per step':>14}{'share':>9}"
    for phase, ns in summary.phases.items():
        if ns or phase is Phase.OTHER:
            bar = "  " + full * round(40 * max(ns, 0) / whole)
            yield _phase(str(phase), ns, whole, summary.steps, summary.clock_limit_ns) + bar
    yield _phase("step", summary.total_step_ns, whole, summary.steps, summary.clock_limit_ns)


def _phase(name: str, ns: int, whole: int, steps: int, limit_ns: int) -> str:
    share = format_percent(ns / whole, limit_ns * steps / whole)
    return f"{name:<12}{format_ms(ns / steps, limit_ns):>14}{share:>9}"


def _names(summary: Summary, width: int, top: int, ellipsis: str) -> Iterator[str]:
    lines = name_lines(summary)
    room = width - len(_NUMBERS)
    every = list(walk(lines.roots))
    # A parent is never shorter than its child, so the longest names are a tree of their own.
    kept = {id(line) for line, _, _ in sorted(every, key=lambda entry: (-entry[0].total_ns, entry[1]))[:top]}
    yield fit("name", room) + _NUMBERS
    for line, depth, name in every:
        if id(line) in kept:
            yield _line(line, depth, name, summary, room, ellipsis)
    left = [line.total_ns for line, _, _ in every if id(line) not in kept]
    if left:
        most = format_percent(max(left) / summary.total_step_ns, summary.clock_limit_ns / summary.step_mean_ns)
        yield f"{ellipsis} and {len(left)} more names, at most {most} of the step each"
    if not every:
        yield "no span was recorded: the whole step is other"
    if lines.separate:
        yield ""
        yield "not part of the step's time (other threads, logged durations)"
        for line, depth, name in list(walk(lines.separate))[:top]:
            yield _line(line, depth, name, summary, room, ellipsis)


def _line(line: Line, depth: int, name: str, summary: Summary, room: int, ellipsis: str) -> str:
    phase = line.rows[0].phase
    split = line.forward_ns or line.recompute_ns or line.backward_ns
    redundant = phase.value == name or ("/" in name and phase.value == name.partition("/")[0].lower())
    shown = name if split or redundant else f"{name} ({phase})"
    text = fit_marked(safe("  " * min(depth, 6) + shown), room, ellipsis, line.is_host_bound)
    limit_ns = line.limit_ns(summary.clock_limit_ns)
    text += f"{format_count(line.calls / summary.steps):>6}"
    text += f"{format_ms(line.total_ns / summary.steps, limit_ns / summary.steps):>12}"
    text += f"{format_percent(line.total_ns / summary.total_step_ns, limit_ns / summary.total_step_ns):>9}"
    if split:
        parts = (line.forward_ns, line.recompute_ns, line.backward_ns)
        text += "".join(_part(ns / summary.steps, limit_ns / summary.steps) for ns in parts)
    return text


def _part(ns: float, limit_ns: float) -> str:
    return f"{format_ms(ns, limit_ns) if ns else '-':>10}"


def _spread(summary: Summary, width: int, ellipsis: str) -> Iterator[str]:
    rows = [row for row in summary.rows if row.lane == TRAINING_LANE][:SPREAD]
    if not rows:
        return
    room = width - len(_SPREAD)
    yield ""
    yield fit("longest", room) + _SPREAD
    for row in rows:
        shown = row.name if row.phase.value == row.name else f"{row.name} {row.phase}"
        times = (row.mean_ns, row.p50_ns, row.p95_ns, row.max_ns)
        limit_ns = row.calls / row.steps * summary.clock_limit_ns
        yield fit(safe(shown), room, ellipsis) + "".join(f"{format_ms(ns, limit_ns):>12}" for ns in times)
