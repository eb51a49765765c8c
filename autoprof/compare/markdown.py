"""A comparison as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .._names import shorten, visible
from .._units import format_ms
from .data import Change, Comparison
from .phrases import PLAIN, headline, interval, label, outcome, percent, value

_MARKS = {"slower": "**slower**", "faster": "**faster**", "more": "**more**", "less": "**less**"}


def render_markdown(comparison: Comparison, *, strict: bool = False) -> list[str]:
    """Return the lines of the comparison: what came out, a table, what differs, what to know."""
    lines = [f"### {headline(comparison)}", ""]
    said = outcome(comparison, strict=strict)
    lines += [_text(said), ""] if said else []
    changes = (*comparison.whole, *comparison.phases, *comparison.rows, *comparison.memory)
    lines += ["| | A | B | change | 95 % interval | verdict |", "|---|--:|--:|--:|--:|---|", *_table(changes)]
    for title, rows in (("Only in A", comparison.removed), ("Only in B", comparison.added)):
        if rows:
            lines += [
                "",
                f"{title}: " + ", ".join(f"{_code(row.name)} {row.phase} {format_ms(row.ns)}" for row in rows),
            ]
    if comparison.differences:
        lines += ["", "| different | A | B |", "|---|---|---|"]
        for one in comparison.differences:
            sides = (_text(shorten(", ".join(side), 120)) for side in (one.a, one.b))
            lines.append(f"| {_text(one.key)} | {' | '.join(sides)} |")
    if comparison.small:
        lines += ["", f"{comparison.small} rows below the least share of the step are left out."]
    if comparison.notes:
        lines += ["", *(f"- {_text(note)}" for note in comparison.notes)]
    return lines


def _table(changes: Iterable[Change]) -> Iterator[str]:
    for one in changes:
        why = f" ({_text(one.why)})" if one.why and not one.why.startswith(PLAIN) else ""
        was = f" (was {_code(one.was)})" if one.was else ""
        name = f"{_code(one.name)} {one.phase}" if one.name and one.phase else _text(label(one))
        unit = " (samples/s)" if one.unit == "samples/s" else ""
        ratio = "" if one.ratio is None else f"{percent(one.ratio)} %"
        cells = (value(one, one.a), value(one, one.b), ratio, interval(one))
        yield f"| {name}{unit}{was} | {' | '.join(cells)} | {_MARKS.get(one.verdict, one.verdict)}{why} |"


def _text(text: str) -> str:
    shown = visible(text)
    for character in ("\\", "|", "<", "*", "_", "`"):
        shown = shown.replace(character, f"\\{character}")
    return shown


def _code(name: str) -> str:
    return f"`{visible(name).replace('`', chr(39)).replace('|', chr(92) + '|')}`"
