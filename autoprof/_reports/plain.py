"""The plain line, for outputs without a terminal: the log of a job, a notebook, a pipe."""

from __future__ import annotations

from typing import Final

from .._units import format_ms, format_rate, format_round_percent, format_span
from ..summary import Summary
from .card import verdict_line
from .measurements import brief_metrics, brief_work
from .name_lines import name_lines
from .panel import top_lines
from .text import cells, elide, safe

LINE: Final = 100
"""Cells of the line at most; the files of the run have the rest."""
PHASES: Final = 3
"""The longest phases come before all names, the others after the first name."""
NAME: Final = 30
"""Cells of a name at most."""
_START, _PHASES, _TOP, _USE, _OVERHEAD = range(5)
"""The parts of the line, from left to right."""


class _Line:
    """A line that takes pieces while there is room: the most important ones are offered first."""

    def __init__(self, start: str) -> None:
        self._parts: list[dict[int, str]] = [{0: start}, {}, {}, {}, {}]

    def offer(self, part: int, place: int, text: str) -> None:
        """Add a piece to a part at its place among the others, if the line has room for it."""
        self._parts[part][place] = text
        if cells(self.text()) > LINE and part != _START:
            del self._parts[part][place]

    def text(self) -> str:
        """Return the line."""
        separators = (" | ", " ", ", ", " ", "")
        texts = [
            separator.join(text for _, text in sorted(part.items()))
            for part, separator in zip(self._parts, separators, strict=True)
        ]
        texts[_TOP] = f"top {texts[_TOP]}" if texts[_TOP] else ""
        return " | ".join(filter(None, texts))


def render_plain(summary: Summary, *, step: int, top: int = 3, encoding: str = "utf-8") -> str:
    """Return the run so far in one line of at most 100 cells: means per recorded step, percentages of the step.

    It has the time of a step, the throughput and the time left, then as much as fits: phases and names, the longest
    first, rates, utilization and overhead.
    """
    if not summary.steps:
        return f"autoprof | step {step} | warming up"
    whole = max(summary.total_step_ns, 1)
    limit = summary.clock_limit_ns * summary.steps / whole
    line = _Line(f"autoprof | step {step} | {format_ms(summary.step_mean_ns)}")
    if summary.throughput is not None:
        line.offer(_START, 1, format_rate(summary.throughput, summary.throughput_unit))
    if summary.progress is not None and summary.progress.remaining_ns:
        line.offer(_START, 2, f"{format_span(summary.progress.remaining_ns)} left")
    phases = [
        (ns, place, f"{phase.short} {format_round_percent(ns / whole, limit)}%")
        for place, (phase, ns) in enumerate(summary.phases.items())
        if ns
    ]
    phases.sort(reverse=True)
    names = [
        f"{elide(safe(bar.name, encoding), NAME)} {format_round_percent(bar.total_ns / whole, bar.limit_ns / whole)}%"
        for bar in top_lines(name_lines(summary), top, summary.total_step_ns, summary.clock_limit_ns)
    ]
    pieces = [(_PHASES, place, text) for _, place, text in phases]
    pieces[PHASES:PHASES] = [(_TOP, 0, name) for name in names[:1]]
    pieces += [(_TOP, place, name) for place, name in enumerate(names[1:], 1)]
    pieces += [(_USE, place, text) for place, text in enumerate([*brief_work(summary.work), *brief_metrics(summary)])]
    for part, place, text in [*pieces, (_OVERHEAD, 0, f"overhead {100 * summary.overhead:.2f} %")]:
        line.offer(part, place, text)
    return safe(line.text(), encoding)


def render_plain_verdict(summary: Summary, *, encoding: str = "utf-8") -> str | None:
    """Return the verdict in one line of at most 100 cells, with its gain where there is room; None before one."""
    for gain in (True, False):
        verdict = verdict_line(summary, gain=gain)
        if verdict is None:
            return None
        text = safe(f"autoprof | verdict: {verdict}", encoding)
        if cells(text) <= LINE:
            return text
    return elide(text, LINE)
