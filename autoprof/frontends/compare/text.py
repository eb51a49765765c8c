"""A comparison as text for a terminal, a file or a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...base.frame import Phase
from ...base.units import NS_PER_S, count, format_bytes, format_ms
from ...reports.text import cells, crop, fit, safe, wrap
from .data import Change, Comparison, Difference, RunNote, Verdict

_MIN_WIDTH: Final = 80
_NUMBERS_WIDTH: Final = 10 + 10 + 9 + 17 + 14


def render_comparison(comparison: Comparison, *, width: int = _MIN_WIDTH) -> list[str]:
    """Return the report, no line wider than ``width`` cells (at least 80)."""
    width = max(width, _MIN_WIDTH)
    lines = [*_runs(comparison, width), *_differences(comparison.differences, width)]
    lines += [""] if comparison.notes else []
    for note in comparison.notes:
        lines += wrap("note", note, width)
    head = f"{'A':>10}{'B':>10}{'change':>9}{'95 % interval':>17}  {'verdict':<12}"
    lines += ["", fit("median per step", _name_width(width)) + head]
    lines += ["─" * (_name_width(width) + _NUMBERS_WIDTH)]
    for change in comparison.whole:
        lines += _change(change, change.name + (" (/s)" if change.unit == "samples/s" else ""), width)
    for change in comparison.phases:
        lines += _change(change, f"  {change.phase}", width)
    lines += _rows(comparison, width)
    if comparison.memory:
        lines += ["", "memory"]
        for change in comparison.memory:
            lines += _change(change, f"  {label(change)}", width)
    lines += ["", *_legend(comparison, width), ""]
    lines += wrap("verdict", headline(comparison), width)
    lines += wrap("", f"rows: {_tally(comparison.rows)}", width) if comparison.rows else []
    lines += wrap("limit", _limit_result(comparison), width) if comparison.limit is not None else []
    return [crop(safe(line), width).rstrip() for line in lines]


def headline(comparison: Comparison) -> str:
    """Return the result for the whole step in one sentence."""
    step = comparison.whole[0]
    if step.ratio is None:
        return f"B against A: inconclusive, {step.why}"
    result = {
        "slower": "B is slower than A",
        "faster": "B is faster than A",
        "same": f"B is as fast as A, within ±{100 * comparison.margin:g} %",
    }.get(step.verdict, "B against A: inconclusive")
    return f"{result}: {percent(step.ratio)} % {interval(step)} a step"


def value(change: Change, number: float | None) -> str:
    """Return a value with its unit, the same for both sides; samples per second without it."""
    hour_ns = 3600 * NS_PER_S
    if number is None:
        return "-"
    if change.unit == "bytes":
        return format_bytes(number)
    if change.unit == "ns":
        longest = max(abs(change.a or 0), abs(change.b or 0))
        if longest >= hour_ns:
            return f"{number / hour_ns:.2f} h"
        # More digits of milliseconds would fill their column.
        return f"{number / NS_PER_S:.2f} s" if longest >= 9_999_950_000 else format_ms(number)
    return f"{number:.4g}" if number < 1e4 else f"{number:.0f}"


def percent(ratio: float | None) -> str:
    """Return a ratio as a change in percent: ``+4.1``, ``-0.3``; ``?`` for an infinite end."""
    if ratio is None:
        return "?"
    points = 100 * (ratio - 1)
    for scale, letter in ((1e6, "M"), (1e3, "k")):
        if abs(points) >= 9.9995 * scale:
            return f"{points / scale:+.0f}{letter}"
    text = f"{points:+.0f}" if abs(points) >= 99.95 else f"{points:+.1f}"
    return text.replace("-0.0", "0.0").replace("+0.0", "0.0")


def interval(change: Change) -> str:
    """Return the interval of a change: ``[+3.2, +5.0]``; empty where there is none."""
    return "" if change.ratio is None else f"[{percent(change.low)}, {percent(change.high)}]"


def label(change: Change) -> str:
    """Return the name of a change: ``VRT/Stage8 forward``, ``forward`` for a phase, ``rss peak`` for a reading."""
    if change.phase is None:
        is_reading = change.unit == "bytes"
        return change.name.removesuffix("_bytes").replace("_", " ") if is_reading else change.name
    return str(change.phase) if change.name in ("", str(change.phase)) else f"{change.name} {change.phase}"


def by_phase(change: Change) -> int:
    """Return the sort key that puts the rows of one name in the order of a step."""
    return -1 if change.phase is None else list(Phase).index(change.phase)


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
    """Show the entries that differ; of long values only the words that differ."""
    if found:
        yield ""
        yield "different in A and B"
    for one in found:
        a, b = ([safe(word) for text in side for word in text.split()] for side in (one.a, one.b))
        if sum(map(cells, a + b)) > width:
            a, b = _words_that_differ(a, b), _words_that_differ(b, a)
        yield from wrap("", f"{one.key}: {' '.join(a)} -> {' '.join(b)}", width, room=2)


def _words_that_differ(words: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the words that the others lack, each with the word before it, which may be its option."""
    return [word for word, after in zip(words, [*words[1:], ""], strict=True) if not {word, after} <= {*others, ""}]


def _name_width(width: int) -> int:
    return min(width - _NUMBERS_WIDTH, 40)


def _change(change: Change, name: str, width: int) -> Iterator[str]:
    shown = fit(safe(name), _name_width(width))
    change_by = "" if change.ratio is None else f"{percent(change.ratio)} %"
    numbers = f"{value(change, change.a):>10}{value(change, change.b):>10}{change_by:>9}{interval(change):>17}"
    yield f"{shown}{numbers}  {change.verdict:<12}"
    # The legend explains these reasons.
    if change.why and not change.why.startswith(("the interval is wider than", "not proven among")):
        yield from wrap("", change.why, width, room=4)


def _rows(comparison: Comparison, width: int) -> Iterator[str]:
    """Show names with their phases below them, in descending order of their difference."""
    moved = [row for row in comparison.rows if row.verdict in ("slower", "faster")]
    others = [row for row in comparison.rows if row not in moved]
    hidden = others[max(40 - len(moved), 0) :]
    groups: dict[str, list[Change]] = {}
    for row in comparison.rows:
        if row not in hidden:
            groups.setdefault(row.name, []).append(row)
    for name, rows in groups.items():
        yield ""
        yield name
        for row in sorted(rows, key=by_phase):
            yield from _change(row, f"  {row.phase}", width)
    if hidden:
        yield ""
        yield f"… and {count(len(hidden), 'more row')}: {_tally(hidden)}"
    if comparison.small:
        yield ""
        text = f"{comparison.small} rows below the minimum share of the step are excluded (--min-share 0 shows them)"
        yield from wrap("", text, width, room=0)


def _legend(comparison: Comparison, width: int) -> list[str]:
    clock = "host" if comparison.clock != "device" else "device"
    text = (
        f"Medians in {clock} time; each interval is for its own row. slower, faster: proven to differ, at 5 % "
        f"for all rows together; same: proven to lie within ±{100 * comparison.margin:g} %; inconclusive: neither."
    )
    return wrap("", text, width, room=0)


def _tally(changes: Iterable[Change]) -> str:
    """Count verdicts: ``3 slower, 10 same``."""
    counts = Counter(change.verdict for change in changes)
    order: tuple[Verdict, ...] = ("slower", "faster", "inconclusive", "same")
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict])


def _limit_result(comparison: Comparison) -> str:
    """Return the changes beyond the limit in one sentence."""
    max_named = 5
    limit = f"{100 * (comparison.limit or 0):g} %"
    proven = comparison.over_limit()
    if not proven:
        return f"pass: nothing is proven to be slower by more than {limit}"
    named = "; ".join(f"{label(change)} {percent(change.ratio)} % {interval(change)}" for change in proven[:max_named])
    more = f"; and {len(proven) - max_named} more" if len(proven) > max_named else ""
    return f"FAIL: slower by more than {limit}: {named}{more}"
