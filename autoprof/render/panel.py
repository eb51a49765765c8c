"""The live panel, formatted by hand: a redraw costs microseconds where a general layout engine takes milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..span import Phase
from ..summary import Summary, counts
from ..units import NS_PER_MS, format_bytes, format_ms, format_percent, format_rate
from .lines import Line, Lines, name_lines
from .text import BLUE, BOLD, CYAN, DIM, GREEN, RESET, YELLOW, Glyphs, cells, crop, fit, glyphs_for, safe

REST: Final = "everything else"
SHORT: Final = {
    Phase.DATA: "data", Phase.H2D: "h2d", Phase.FORWARD: "fwd", Phase.RECOMPUTE: "rec", Phase.BACKWARD: "bwd",
    Phase.COMM: "comm", Phase.OPTIMIZER: "opt", Phase.USER: "user", Phase.VALIDATION: "val", Phase.OTHER: "other",
}  # fmt: skip
"""Phases where room is short."""

_NUMBERS: Final = len("  12345.6 ms  100.0 %")
_SPLIT: Final = len("  fwd 12345")
_SPLIT_FROM: Final = 78
_NAME_MIN: Final = 12
_NAME_MAX: Final = 48
_BAR_MIN: Final = 5
_BAR_MAX: Final = 48


class Bar(NamedTuple):
    """One line of the panel: nanoseconds over all recorded steps, whole and by phase (zeros where it has none)."""

    name: str
    total_ns: int
    forward_ns: int = 0
    recompute_ns: int = 0
    backward_ns: int = 0


def top_lines(lines: Lines, top: int, total_step_ns: int) -> list[Bar]:
    """Choose the ``top`` lines that say most about where the step goes, none of them inside another.

    It starts from the names that no other contains. The longest gives way to its children when it takes more than
    half of the step, or when there are fewer than ``top`` lines, provided that the children cover at least half of
    it; what they do not cover stays as ``name (self)``. So lines never overlap and their percentages add up.
    Durations measured elsewhere (``log_timing``) are shown only where nothing was measured here.
    """
    front: list[Line] = list(lines.roots or lines.beside)
    chosen: list[Bar] = []
    while front:
        front.sort(key=_time)
        opened = next((line for line in front if _opens(line, len(front) + len(chosen) < top, total_step_ns)), None)
        if opened is None:
            break
        front.remove(opened)
        front += opened.children
        chosen.append(_own(opened))
    chosen += [Bar(line.name, line.total_ns, line.forward_ns, line.recompute_ns, line.backward_ns) for line in front]
    chosen.sort(key=lambda bar: (-bar.total_ns, bar.name))
    return [bar for bar in chosen[:top] if bar.total_ns]


def _time(line: Line) -> tuple[int, str]:
    return -line.total_ns, line.name


def _opens(line: Line, few: bool, total_step_ns: int) -> bool:
    return bool(line.children) and (few or 2 * line.total_ns > total_step_ns) and 2 * line.own_ns <= line.total_ns


def _own(line: Line) -> Bar:
    forward, recompute, backward = (
        max(0, own - sum(theirs))
        for own, theirs in (
            (line.forward_ns, [child.forward_ns for child in line.children]),
            (line.recompute_ns, [child.recompute_ns for child in line.children]),
            (line.backward_ns, [child.backward_ns for child in line.children]),
        )
    )
    return Bar(f"{line.name} (self)", line.own_ns, forward, recompute, backward)


def render_panel(
    summary: Summary, *, width: int, top: int, color: bool, step: int | None = None, encoding: str = "utf-8"
) -> list[str]:
    """Return the live panel, no line wider than ``width`` cells.

    Milliseconds are means per recorded step, percentages are of the step; the top lines (``top_lines``) and
    ``everything else`` add up to the total, and so do the phases.
    """
    painter = _Painter(glyphs_for(encoding), max(width, 1), color, encoding)
    dot = f" {painter.glyphs.dot} "
    title = dot.join(["autoprof", *([] if step is None else [f"step {step}"]), *_speed(summary)])
    lines = [painter.edge(painter.glyphs.top, title)]
    if not summary.steps:
        lines.append(painter.text(f"{summary.warmup_steps} warm-up steps, kept apart; no other step is recorded yet"))
        return [*lines, painter.edge(painter.glyphs.bottom, "")]
    bars = top_lines(name_lines(summary), top, summary.total_step_ns)
    rest = summary.total_step_ns - sum(bar.total_ns for bar in bars)
    if rest > 0:
        bars.append(Bar(REST, rest))
    lines += painter.bars(bars, summary.steps, summary.total_step_ns)
    lines.append(painter.text(_phases(summary, painter.width - 2)))
    lines += [painter.text(note) for note in _notes(summary, dot)]
    lines.append(painter.edge(painter.glyphs.bottom, dot.join(_total(summary))))
    return lines


def _phases(summary: Summary, width: int) -> str:
    """Phrase the phases that took time, and ``other`` always, in words as long as the width allows."""
    shares = [(phase, ns / summary.total_step_ns) for phase, ns in summary.phases.items() if ns or phase is Phase.OTHER]
    text = "  ".join([f"{phase.value} {format_percent(share)}" for phase, share in shares])
    return text if len(text) <= width else " ".join([f"{SHORT[phase]} {100 * share:.0f}%" for phase, share in shares])


def _speed(summary: Summary) -> list[str]:
    if not summary.steps:
        return ["warming up"]
    speed = [f"{format_ms(summary.step_mean_ns)}/step"]
    return speed if summary.throughput is None else [*speed, format_rate(summary.throughput)]


def _total(summary: Summary) -> list[str]:
    return [
        f"Total {format_ms(summary.step_mean_ns)}",
        f"p50 {format_ms(summary.step_p50_ns)}",
        f"p95 {format_ms(summary.step_p95_ns)}",
        f"autoprof itself {format_percent(summary.overhead)}",
    ]


def _notes(summary: Summary, dot: str) -> list[str]:
    notes = []
    if summary.memory:
        memory = (f"{label(key)} {format_bytes(count)}" for key, count in summary.memory.items())
        notes.append("memory: " + dot.join(memory))
    both = (("dropped", summary.dropped), ("skipped", summary.skipped))
    lost = [f"{word} {counts(reasons)}" for word, reasons in both if reasons]
    if lost:
        notes.append(dot.join(lost))
    return [*notes, *summary.notes]


def label(key: str) -> str:
    """Phrase the key of a reading: ``rss_peak_bytes`` is ``rss peak``."""
    return key.removesuffix("_bytes").replace("_", " ")


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
            return [self.text(f"{bar.name} {format_percent(bar.total_ns / total_step_ns)}") for bar in bars]
        names = [safe(bar.name, self.encoding) for bar in bars]
        name = min(max(map(cells, names)), _NAME_MAX, max(_NAME_MIN, room - _BAR_MIN - 1), room)
        bar_cells = min(room - name - 1, _BAR_MAX) if room - name > _BAR_MIN else 0
        side = self.paint(self.glyphs.side, DIM)
        lines = []
        for bar, shown in zip(bars, names, strict=True):
            text = f"{side} {fit(shown, name, self.glyphs.ellipsis)}"
            if bar_cells:
                text += " " + self._bar(bar, bar_cells, total_step_ns)
            text += f"{format_ms(bar.total_ns / steps):>12}{format_percent(bar.total_ns / total_step_ns):>9}"
            lines.append(text + self._split(bar, steps, recomputed) if split else text)
        return lines

    def _bar(self, bar: Bar, width: int, total_step_ns: int) -> str:
        full = min(-(-width * bar.total_ns // total_step_ns), width)  # rounded up: what took time has a cell
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
        return "".join("  " + self.paint(f"{word} {_short_ms(ns / steps):>5}", style) for word, ns, style in parts)


def _short_ms(ns: float) -> str:
    """Milliseconds in at most five characters; a phase that did not run is a dash."""
    if not ns:
        return "-"
    ms = ns / NS_PER_MS
    if ms < 99.95:
        return f"{ms:.2f}" if ms < 9.995 else f"{ms:.1f}"
    return f"{ms:.0f}" if ms < 99_999.5 else f"{ms / 1000:.0f}k"
