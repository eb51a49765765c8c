"""The text report of ``autoprof inspect``: a table of columns per run, then a line per file."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._core.units import NS_PER_S, format_span
from .._reports.text import elide, fit, safe
from .fields import FIELDS, METRICS, unknown_columns

if TYPE_CHECKING:
    import pandas as pd

_MIN_TEXT_WIDTH: Final = 20


def render_report(df: pd.DataFrame, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """Return the lines of the report, ``width`` cells wide; the tables are wider than a narrow terminal."""
    max_unread = 5
    lines: list[str] = []
    for run, table in df.groupby("run", observed=True, sort=False):
        lines += [elide(str(run), width), f"  {_records(table)}", *_columns(table, width), ""]
    for entry in df.attrs.get("files", []):
        path = elide(entry["path"], max(width - 40, _MIN_TEXT_WIDTH))
        lines += _wrap(f"read {path} as {entry['reader']}: {_counts(entry)}", width)
        for note in entry["notes"]:
            lines += _wrap(note, width, "  - ")
    unread = df.attrs.get("unread", [])
    if unread:
        more = f" and {len(unread) - max_unread} more" if len(unread) > max_unread else ""
        lines += _wrap(f"no training record in: {', '.join(unread[:max_unread])}{more}", width)
    return [safe(line.rstrip(), encoding) for line in lines]


def _records(table: pd.DataFrame) -> str:
    text = f"{len(table):,} rows, steps {table['step'].min():g} to {table['step'].max():g}"
    if "rank" in table and table["rank"].nunique() > 1:
        text += f", {table['rank'].nunique()} ranks"
    if "elapsed_s" in table and table["elapsed_s"].max() > 0:
        text += f", {format_span(NS_PER_S * float(table['elapsed_s'].max() - table['elapsed_s'].min()))}"
    return text


def _columns(table: pd.DataFrame, width: int) -> list[str]:
    """Return a row for each measurement, then for each column whose name is not known; of many for the first."""
    max_columns, number_width = 24, 10
    names = [name for name in table if name in METRICS] + unknown_columns(table)
    name_width = max(width - 2 - 5 * number_width, _MIN_TEXT_WIDTH)
    heads = "".join(f"{word:>{number_width}}" for word in ("first", "last", "min", "median", "max"))
    rows = [f"  {fit('column', name_width)}{heads}"]
    for name in names[:max_columns]:
        known = table[name][np.isfinite(table[name])]
        if len(known):
            numbers = (known.iloc[0], known.iloc[-1], known.min(), known.median(), known.max())
            unit = FIELDS[name].unit if name in FIELDS else ""
            label = fit(f"{name} ({unit})" if unit else name, name_width)
            rows.append(f"  {label}" + "".join(f"{_short(value):>{number_width}}" for value in numbers))
    if len(names) > max_columns:
        rows.append(f"  and {len(names) - max_columns} more: --json has all")
    return rows


def _counts(entry: dict[str, Any]) -> str:
    return ", ".join(
        f"{number:,} {word}{'' if number == 1 else 's'}{end}"
        for number, word, end in (
            (entry["lines"], "line", ""), (entry["records"], "record", ""), (entry["skipped"], "line", " skipped"),
        )
    )  # fmt: skip


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    rest = " " * len(indent) or "  "
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=rest, break_on_hyphens=False)


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e8 else f"{value:.4g}"
