"""The live panel, formatted by hand: a redraw costs microseconds where a general layout engine takes milliseconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from .._units import (
    NS_PER_S,
    count,
    format_ms,
    format_percent,
    format_rate,
    format_round_percent,
    format_short,
    format_span,
)
from ..frame import Phase
from ..summary import Summary, format_counts
from .card import verdict_line
from .measurements import brief_metrics, brief_work
from .memory_text import readings
from .name_lines import Line, Lines, name_lines
from .text import (
    BLUE,
    BOLD,
    CYAN,
    DIM,
    GREEN,
    HOST_BOUND,
    RESET,
    YELLOW,
    Glyphs,
    cells,
    crop,
    fit_marked,
    glyphs_for,
    safe,
)

REST: Final = "everything else"
OLD_S: Final = 2.0
"""Age of the figures from which the title says it; a terminal is redrawn twice a second."""
MAX_FOLDED: Final = 256
"""The longest lines, of which numbered ones are folded: the panel is drawn within a training step."""
OUTLIER: Final = 2
"""How many times the median a numbered line takes that has a row of its own."""
_NUMBER: Final = re.compile(r"\d+")
_NUMBERS: Final = len("  12345.6 ms  100.0 %")
_SPLIT: Final = len("  fwd 12345")
_SPLIT_FROM: Final = 78
_NAME_MIN: Final = 12
_NAME_MAX: Final = 48
_BAR_MIN: Final = 5
_BAR_MAX: Final = 48


class Bar(NamedTuple):
    """One line of the panel: nanoseconds over all recorded steps, in total and by phase (0 without the phase).

    A time below ``limit_ns``, the resolution of the clock, is shown as less than that.
    """

    name: str
    total_ns: int
    forward_ns: int = 0
    recompute_ns: int = 0
    backward_ns: int = 0
    limit_ns: int = 0
    is_host_bound: bool = False


def top_lines(lines: Lines, top: int, total_step_ns: int, clock_limit_ns: int = 0) -> list[Bar]:
    """Choose the ``top`` longest lines, none of them inside another.

    It starts from the outermost names. The longest is replaced by its children when it takes more than half of the
    step, or when there are fewer than ``top`` lines, provided that the children cover at least half of it; the rest of
    it remains as ``name (self)``. So lines never overlap and their percentages add up. Where more than ``top`` remain,
    numbered lines of similar length, as the layers of a transformer, are one (``fold_numbered``). Logged durations
    (``log_timing``) are shown only where nothing else was measured.
    """
    front: list[Line] = list(lines.roots or lines.separate)
    chosen: list[Bar] = []
    while front:
        front.sort(key=_time)
        opened = next((line for line in front if _opens(line, len(front) + len(chosen) < top, total_step_ns)), None)
        if opened is None:
            break
        front.remove(opened)
        front += opened.children
        chosen.append(_own(opened, clock_limit_ns))
    front.sort(key=_time)
    front = front[:MAX_FOLDED]
    groups = fold_numbered(front, top) if len(front) > top else [(line.name, [line]) for line in front]
    chosen += [_sum_of(name, group, clock_limit_ns) for name, group in groups]
    chosen.sort(key=lambda bar: (-bar.total_ns, bar.name))
    return [bar for bar in chosen[:top] if bar.total_ns]


def _time(line: Line) -> tuple[int, str]:
    return -line.total_ns, line.name


def _opens(line: Line, few: bool, total_step_ns: int) -> bool:
    return bool(line.children) and (few or 2 * line.total_ns > total_step_ns) and 2 * line.own_ns <= line.total_ns


def fold_numbered(lines: Sequence[Line], top: int) -> list[tuple[str, list[Line]]]:
    """Group more than ``top`` lines whose names differ in one number and that take less than twice their median.

    Return the name of each group, ``layer.0-11`` for twelve layers, and its lines. Other lines are not grouped.
    """
    like: dict[tuple[str, str], list[tuple[int, str, Line]]] = {}
    for line in lines:
        for number in _NUMBER.finditer(line.name):
            key = line.name[: number.start()], line.name[number.end() :]
            like.setdefault(key, []).append((int(number[0]), number[0], line))
    folded: set[Line] = set()
    groups: list[tuple[str, list[Line]]] = []
    for (before, after), alike in sorted(like.items(), key=_by_size):
        longest_ns = OUTLIER * median([line.total_ns for *_, line in alike])
        kept = [one for one in alike if one[2].total_ns < longest_ns and one[2] not in folded]
        if len(kept) > top:
            folded.update(line for *_, line in kept)
            numbers = _ranges(sorted((number, text) for number, text, _ in kept))
            groups.append((f"{before}{numbers}{after}", [line for *_, line in kept]))
    return [*groups, *((line.name, [line]) for line in lines if line not in folded)]


def _by_size(item: tuple[tuple[str, str], list[tuple[int, str, Line]]]) -> int:
    return -len(item[1])


def _ranges(numbers: Sequence[tuple[int, str]]) -> str:
    """Return ``0-3,5`` for 0, 1, 2, 3 and 5, in the digits of the names."""
    texts: list[str] = []
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number[0] <= last[0] + 1:
            last = number
            continue
        texts.append(first[1] if first == last else f"{first[1]}-{last[1]}")
        if number is not None:
            first = last = number
    return ",".join(texts)


def _sum_of(name: str, lines: Sequence[Line], clock_limit_ns: int) -> Bar:
    total_ns = sum(line.total_ns for line in lines)
    return Bar(
        name,
        total_ns,
        sum(line.forward_ns for line in lines),
        sum(line.recompute_ns for line in lines),
        sum(line.backward_ns for line in lines),
        sum(line.limit_ns(clock_limit_ns) for line in lines),
        2 * sum(line.host_bound_ns for line in lines) > total_ns,
    )


def _own(line: Line, clock_limit_ns: int) -> Bar:
    forward, recompute, backward = (
        max(0, own - sum(theirs))
        for own, theirs in (
            (line.forward_ns, [child.forward_ns for child in line.children]),
            (line.recompute_ns, [child.recompute_ns for child in line.children]),
            (line.backward_ns, [child.backward_ns for child in line.children]),
        )
    )
    bound = line.host_bound_ns - sum(child.host_bound_ns for child in line.children)
    parts = forward, recompute, backward
    return Bar(f"{line.name} (self)", line.own_ns, *parts, line.limit_ns(clock_limit_ns), 2 * bound > line.own_ns)


def render_panel(
    summary: Summary,
    *,
    width: int,
    top: int,
    color: bool,
    step: int | None = None,
    age_s: float = 0.0,
    encoding: str = "utf-8",
) -> list[str]:
    """Return the live panel, no line wider than ``width`` cells.

    ``step`` is the last step in the figures, which ended ``age_s`` seconds ago; the title says so from ``OLD_S`` on.
    Milliseconds are means per recorded step, percentages are of the step; the top lines (``top_lines``) and
    ``everything else`` add up to the total, and so do the phases.
    """
    painter = _Painter(glyphs_for(encoding), max(width, 1), color, encoding)
    dot = f" {painter.glyphs.dot} "
    lines = [render_title(summary, width=width, color=color, step=step, age_s=age_s, encoding=encoding)]
    if not summary.steps:
        lines.append(
            painter.text(f"{count(summary.warmup_steps, 'warm-up step')} so far, excluded from all statistics")
        )
        return [*lines, painter.edge(painter.glyphs.bottom, "")]
    bars = top_lines(name_lines(summary), top, summary.total_step_ns, summary.clock_limit_ns)
    rest = summary.total_step_ns - sum(bar.total_ns for bar in bars)
    if rest > 0:
        bars.append(Bar(REST, rest, limit_ns=summary.steps * summary.clock_limit_ns))
    lines += painter.bars(bars, summary.steps, summary.total_step_ns)
    lines.append(painter.text(_phases(summary, painter.width - 2)))
    lines += [painter.text(note) for note in _notes(summary, dot)]
    if any(bar.is_host_bound for bar in bars):
        lines.append(painter.text(HOST_BOUND))
    verdict = verdict_line(summary)
    lines += [] if verdict is None else [painter.text(f"verdict: {verdict}")]
    lines.append(painter.edge(painter.glyphs.bottom, dot.join(_total(summary))))
    return lines


def render_title(
    summary: Summary,
    *,
    width: int,
    color: bool,
    step: int | None = None,
    age_s: float = 0.0,
    encoding: str = "utf-8",
) -> str:
    """Return the first line of the panel, the only one that changes with the age of the figures."""
    painter = _Painter(glyphs_for(encoding), max(width, 1), color, encoding)
    dot = f" {painter.glyphs.dot} "
    parts = ["autoprof", *([] if step is None else [_step(step, age_s)]), *_speed(summary)]
    while len(parts) > 2 and cells(dot.join(parts)) > painter.width - 4:
        parts.pop()
    return painter.edge(painter.glyphs.top, dot.join(parts))


def _step(step: int, age_s: float) -> str:
    if age_s < OLD_S:
        return f"step {step}"
    age = f"{int(age_s)} s" if age_s < 60 else format_span(age_s * NS_PER_S)
    return f"figures of step {step}, {age} ago"


def _phases(summary: Summary, width: int) -> str:
    """Phrase the phases that took time, and ``other`` always, in words as long as the width allows."""
    shares = [(phase, ns / summary.total_step_ns) for phase, ns in summary.phases.items() if ns or phase is Phase.OTHER]
    limit = summary.clock_limit_ns * summary.steps / summary.total_step_ns
    text = "  ".join([f"{phase.value} {format_percent(share, limit)}" for phase, share in shares])
    if len(text) <= width:
        return text
    return " ".join([f"{phase.short} {format_round_percent(share, limit)}%" for phase, share in shares])


def _speed(summary: Summary) -> list[str]:
    if not summary.steps:
        return ["warming up"]
    speed = [f"{format_ms(summary.step_mean_ns)}/step"]
    if summary.throughput is not None:
        speed.append(format_rate(summary.throughput, summary.throughput_unit))
    if summary.progress is not None and summary.progress.remaining_ns:
        speed.append(f"{format_span(summary.progress.remaining_ns)} left")
    return speed


def _total(summary: Summary) -> list[str]:
    return [
        f"Total {format_ms(summary.step_mean_ns)}",
        f"p50 {format_ms(summary.step_p50_ns)}",
        f"p95 {format_ms(summary.step_p95_ns)}",
        f"autoprof itself {format_percent(summary.overhead)}",
    ]


def _notes(summary: Summary, dot: str) -> list[str]:
    notes = []
    for word, parts in (("work", brief_work(summary.work)), ("use", brief_metrics(summary))):
        if parts:
            notes.append(f"{word}: {dot.join(parts)}")
    if summary.memory:
        notes.append("memory: " + dot.join(readings(summary.memory)))
    causes = (("dropped", summary.dropped), ("skipped", summary.skipped))
    lost = [f"{word} {format_counts(reasons)}" for word, reasons in causes if reasons]
    if lost:
        notes.append(dot.join(lost))
    return [*notes, *summary.notes]


class _Painter:
    """Lay out lines of one width. Colour codes are added around pieces whose cells are already counted."""

    def __init__(self, glyphs: Glyphs, width: int, color: bool, encoding: str) -> None:
        self.glyphs = glyphs
        self.width = width
        self.color = color
        self.encoding = encoding

    def paint(self, text: str, style: str) -> str:
        return f"{style}{text}{RESET}" if self.color and text else text

    def edge(self, corner: str, title: str) -> str:
        if not title:
            return self.paint(corner + self.glyphs.rule * (self.width - 1), DIM)
        shown = crop(safe(f" {title} ", self.encoding), self.width - 2)
        rule = self.glyphs.rule * (self.width - 2 - cells(shown))
        left = (corner + self.glyphs.rule)[: self.width]
        return self.paint(left, DIM) + self.paint(shown, BOLD) + self.paint(rule, DIM)

    def text(self, text: str) -> str:
        shown = crop(safe(text, self.encoding), self.width - 2)
        return self.paint(f"{self.glyphs.side} "[: self.width], DIM) + shown

    def bars(self, bars: Sequence[Bar], steps: int, total_step_ns: int) -> list[str]:
        split = self.width >= _SPLIT_FROM
        recomputed = any(bar.recompute_ns for bar in bars)
        room = self.width - 2 - _NUMBERS - (split * (2 + recomputed) * _SPLIT)
        if room < _NAME_MIN // 2:
            return [self.text(f"{bar.name} {_share(bar, total_step_ns)}") for bar in bars]
        names = [safe(bar.name, self.encoding) for bar in bars]
        longest = max(cells(shown) + 2 * bar.is_host_bound for bar, shown in zip(bars, names, strict=True))
        name = min(longest, _NAME_MAX, max(_NAME_MIN, room - _BAR_MIN - 1), room)
        bar_cells = min(room - name - 1, _BAR_MAX) if room - name > _BAR_MIN else 0
        side = self.paint(self.glyphs.side, DIM)
        lines = []
        for bar, shown in zip(bars, names, strict=True):
            text = f"{side} {fit_marked(shown, name, self.glyphs.ellipsis, bar.is_host_bound)}"
            if bar_cells:
                text += " " + self._bar(bar, bar_cells, total_step_ns)
            text += f"{format_ms(bar.total_ns / steps, bar.limit_ns / steps):>12}{_share(bar, total_step_ns):>9}"
            lines.append(text + self._split(bar, steps, recomputed) if split else text)
        return lines

    def _bar(self, bar: Bar, width: int, total_step_ns: int) -> str:
        full = min(-(-width * bar.total_ns // total_step_ns), width)  # rounded up: a line with any time has a cell
        rest = self.paint(self.glyphs.empty * (width - full), DIM)
        if not self.color:
            return self.glyphs.full * full + rest
        pieces, done, reached = "", 0, 0
        for ns, style in ((bar.forward_ns, GREEN), (bar.recompute_ns, YELLOW), (bar.backward_ns, BLUE)):
            done += ns
            end = max(min(round(full * done / bar.total_ns), full), reached)
            pieces += self.paint(self.glyphs.full * (end - reached), style)
            reached = end
        return pieces + self.paint(self.glyphs.full * (full - reached), CYAN) + rest

    def _split(self, bar: Bar, steps: int, recomputed: bool) -> str:
        if not (bar.forward_ns or bar.recompute_ns or bar.backward_ns):
            return ""
        parts = [("fwd", bar.forward_ns, GREEN), ("bwd", bar.backward_ns, BLUE)]
        if recomputed:
            parts.insert(1, ("rec", bar.recompute_ns, YELLOW))
        limit_ns = bar.limit_ns / steps
        texts = [(f"{word} {format_short(ns / steps, limit_ns):>5}", style) for word, ns, style in parts]
        return "".join("  " + self.paint(text, style) for text, style in texts)


def _share(bar: Bar, total_step_ns: int) -> str:
    return format_percent(bar.total_ns / total_step_ns, bar.limit_ns / total_step_ns)
