"""A comparison as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .._names import shorten, visible
from .._units import format_ms
from .data import Change, Comparison
from .wording import differing, headline, interval, label, limit_result, percent, reason, value


def render_markdown(comparison: Comparison, *, strict: bool = False) -> list[str]:
    """Return the lines of the comparison: the result, a table, differences between the runs, notes."""
    lines = [f"### {headline(comparison)}", ""]
    result = limit_result(comparison, strict=strict)
    lines += [_escaped(result), ""] if result else []
    changes = (*comparison.whole, *comparison.phases, *comparison.rows, *comparison.memory)
    lines += ["| | A | B | change | 95 % interval | verdict |", "|---|--:|--:|--:|--:|---|", *_table(changes)]
    for title, rows in (("Only in A", comparison.removed), ("Only in B", comparison.added)):
        if rows:
            named = ", ".join(f"{_code(row.name)} {row.phase} {format_ms(row.ns)}" for row in rows)
            lines += ["", f"{title}: {named}"]
    if comparison.differences:
        lines += ["", "| different | A | B |", "|---|---|---|"]
        for one in comparison.differences:
            sides = (_escaped(shorten(text, 400)) for text in differing(", ".join(one.a), ", ".join(one.b)))
            lines.append(f"| {_escaped(one.key)} | {' | '.join(sides)} |")
    if comparison.small:
        lines += ["", f"{comparison.small} rows below the minimum share of the step are excluded."]
    if comparison.notes:
        lines += ["", *(f"- {_escaped(note)}" for note in comparison.notes)]
    return lines


def _table(changes: Iterable[Change]) -> Iterator[str]:
    for change in changes:
        why = f" ({_escaped(reason(change))})" if reason(change) else ""
        was = f" (was {_code(change.was)})" if change.was else ""
        name = f"{_code(change.name)} {change.phase}" if change.name and change.phase else _escaped(label(change))
        unit = " (samples/s)" if change.unit == "samples/s" else ""
        ratio = "" if change.ratio is None else f"{percent(change.ratio)} %"
        cells = (value(change, change.a), value(change, change.b), ratio, interval(change))
        verdict = change.verdict if change.verdict in ("same", "inconclusive") else f"**{change.verdict}**"
        yield f"| {name}{unit}{was} | {' | '.join(cells)} | {verdict}{why} |"


def _escaped(text: str) -> str:
    shown = visible(text)
    for character in ("\\", "|", "<", "*", "_", "`"):
        shown = shown.replace(character, f"\\{character}")
    return shown


def _code(name: str) -> str:
    return f"`{visible(name).replace('`', chr(39)).replace('|', chr(92) + '|')}`"
