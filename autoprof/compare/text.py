"""A comparison for a terminal or a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import set_cell_size

from .._names import visible
from .._reports.text import cells, crop, fit, glyphs_for, safe, wrap
from .._units import count, format_ms, format_percent
from .data import Change, Comparison, Difference, RunNote, UnpairedRow
from .wording import by_phase, differing, headline, interval, label, limit_result, percent, reason, tally, value

MIN_WIDTH: Final = 80
ROWS: Final = 40
"""Rows shown; slower and faster ones are always shown."""
UNPAIRED_ROWS: Final = 12
DIFFERENCE_LINES: Final = 12
"""Lines of one side of a difference; it begins with the first word that differs."""
MAX_NAME_WIDTH: Final = 40
"""Numbers far from their name are hard to follow."""
_NUMBERS_WIDTH: Final = 10 + 10 + 9 + 17 + 14


def render_comparison(
    comparison: Comparison, *, width: int = MIN_WIDTH, top: int = ROWS, strict: bool = False, encoding: str = "utf-8"
) -> list[str]:
    """Return the report, no line wider than ``width`` cells (at least 80)."""
    width = max(width, MIN_WIDTH)
    glyphs = glyphs_for(encoding)
    lines = [*_runs(comparison, width), *_differences(comparison.differences, width)]
    lines += [""] if comparison.notes else []
    for note in comparison.notes:
        lines += wrap("note", note, width)
    lines += ["", _head(width), glyphs.rule * (_name_width(width) + _NUMBERS_WIDTH)]
    for change in comparison.whole:
        lines += _change(change, change.name + (" (/s)" if change.unit == "samples/s" else ""), width)
    for change in comparison.phases:
        lines += _change(change, f"  {change.phase}", width)
    lines += _rows(comparison, width, top)
    lines += _unpaired("only in A", comparison.removed, width) + _unpaired("only in B", comparison.added, width)
    lines += _regrouped(comparison, width)
    if comparison.memory:
        lines += ["", "memory"]
        for change in comparison.memory:
            lines += _change(change, f"  {label(change)}", width)
    lines += ["", *_legend(comparison, width), ""]
    lines += wrap("verdict", headline(comparison), width)
    counted = tally(comparison.rows)
    lines += wrap("", f"rows: {counted}", width) if counted else []
    result = limit_result(comparison, strict=strict)
    lines += wrap("limit", result, width) if result else []
    return [crop(safe(line, encoding), width).rstrip() for line in lines]


def _runs(comparison: Comparison, width: int) -> Iterator[str]:
    shown = [(side, run) for side, runs in (("A", comparison.a), ("B", comparison.b)) for run in runs]
    path_width = width - 5 - max(cells(_steps(run)) for _, run in shown)
    path_width = min(max(path_width, 24), max(cells(safe(run.path)) for _, run in shown))
    for side, run in shown:
        yield f"{side}  {fit(safe(run.path), path_width)}  {_steps(run)}"


def _steps(run: RunNote) -> str:
    counts = ((run.warmup, "warm-up"), (run.unsampled, "unsampled"))
    excluded = [f"{count} {kind}" for count, kind in counts if count]
    ranks = f", {len(run.ranks)} ranks" if len(run.ranks) > 1 else ""
    return f"{count(run.steps, 'step')}{ranks}" + (f" ({', '.join(excluded)} excluded)" if excluded else "")


def _differences(found: Sequence[Difference], width: int) -> Iterator[str]:
    if found:
        yield ""
        yield "different in A and B"
    for one in found:
        sides = [", ".join(visible(text) for text in side) for side in (one.a, one.b)]
        line = f"  {one.key}: {sides[0]} -> {sides[1]}"
        if cells(line) <= width:
            yield line
            continue
        yield f"  {one.key}:"
        for side, text in zip("AB", differing(sides[0], sides[1]), strict=True):
            yield from _whole(f"    {side} ", text, width)


def _whole(label: str, text: str, width: int) -> list[str]:
    """Wrap a text without cutting any of it up to ``DIFFERENCE_LINES``, also inside a word wider than the line."""
    room = width - cells(label)
    pieces = [part for word in text.split(" ") for part in _pieces(word, room)]
    lines = wrap(label, " ".join(pieces), width, room=cells(label))
    return lines if len(lines) <= DIFFERENCE_LINES else [*lines[:DIFFERENCE_LINES], " " * cells(label) + "…"]


def _pieces(word: str, room: int) -> list[str]:
    found = []
    while cells(word) > room:
        piece = set_cell_size(word, room).rstrip() or word[:1]
        found.append(piece)
        word = word[len(piece) :]
    return [*found, word]


def _head(width: int) -> str:
    numbers = f"{'A':>10}{'B':>10}{'change':>9}{'95 % interval':>17}  {'verdict':<12}"
    return fit("median per step", _name_width(width)) + numbers


def _name_width(width: int) -> int:
    return min(width - _NUMBERS_WIDTH, MAX_NAME_WIDTH)


def _change(change: Change, name: str, width: int) -> Iterator[str]:
    shown = fit(safe(name), _name_width(width))
    change_by = "" if change.ratio is None else f"{percent(change.ratio)} %"
    numbers = f"{value(change, change.a):>10}{value(change, change.b):>10}{change_by:>9}{interval(change):>17}"
    yield f"{shown}{numbers}  {change.verdict:<12}"
    if reason(change):
        yield from wrap("", reason(change), width, room=4)


def _rows(comparison: Comparison, width: int, top: int) -> Iterator[str]:
    """Show names with their phases below them, in descending order of their difference."""
    moved = [row for row in comparison.rows if row.verdict in ("slower", "faster")]
    shown = moved + [row for row in comparison.rows if row not in moved][: max(top - len(moved), 0)]
    groups: dict[str, list[Change]] = {}
    for row in comparison.rows:
        if row in shown:
            groups.setdefault(row.name, []).append(row)
    for name, rows in groups.items():
        yield ""
        was = rows[0].was
        yield name if was is None else f"{name} (was {was})"
        for row in sorted(rows, key=by_phase):
            yield from _change(row, f"  {row.phase}", width)
    hidden = [row for row in comparison.rows if row not in shown]
    if hidden:
        yield ""
        yield f"… and {count(len(hidden), 'more row')}: {tally(hidden)}"
    if comparison.small:
        yield ""
        text = f"{comparison.small} rows below the minimum share of the step are excluded (--min-share 0 shows them)"
        yield from wrap("", text, width, room=0)


def _unpaired(title: str, rows: Sequence[UnpairedRow], width: int) -> list[str]:
    if not rows:
        return []
    lines = ["", title]
    for row in rows[:UNPAIRED_ROWS]:
        share = f"  {format_percent(row.share)} of the step" if row.share is not None else ""
        modules = f"  ({', '.join(row.fqns)})" if row.fqns else ""
        lines.append(crop(f"  {row.name} {row.phase}  {format_ms(row.ns)}{share}{modules}", width))
    return [*lines, *([f"  … and {len(rows) - UNPAIRED_ROWS} more"] if len(rows) > UNPAIRED_ROWS else [])]


def _regrouped(comparison: Comparison, width: int) -> list[str]:
    if not comparison.regrouped:
        return []
    lines = ["", "names of different modules in A and B"]
    for name, (gone, new) in list(comparison.regrouped.items())[:UNPAIRED_ROWS]:
        parts = [f"{word} {', '.join(fqns)}" for word, fqns in (("without", gone), ("with", new)) if fqns]
        lines.append(crop(f"  {name}: {', '.join(parts)} in B", width))
    return lines


def _legend(comparison: Comparison, width: int) -> list[str]:
    clock = "host" if comparison.clock != "device" else "device"
    text = (
        f"Medians in {clock} time; each interval is for its own row. slower, faster: proven to differ, at 5 % "
        f"for all rows together; same: proven to lie within ±{100 * comparison.margin:g} %; inconclusive: neither."
    )
    return wrap("", text, width, room=0)
