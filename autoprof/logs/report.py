"""The text report of ``autoprof inspect``: a table of columns per run, then a line per file."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np

from ..base.units import NS_PER_S, count, format_span
from ..reports.text import elide, render_rows, safe
from .fields import FIELDS, METRICS, unknown_columns

if TYPE_CHECKING:
    import pandas as pd

_MIN_TEXT_WIDTH: Final = 20


def render_report(df: pd.DataFrame, *, width: int = 80) -> list[str]:
    """Return the lines of the report, ``width`` cells wide; the tables are wider than a narrow terminal."""
    lines: list[str] = []
    for run, table in df.groupby("run", observed=True, sort=False):
        lines += [elide(str(run), width), f"  {_records(table)}", *_columns(table, width), ""]
    for entry in df.attrs["files"]:
        path = elide(entry["path"], max(width - 40, _MIN_TEXT_WIDTH))
        counts = f"{count(entry['lines'], 'line')}, {count(entry['records'], 'record')}, {entry['skipped']} skipped"
        lines += textwrap.wrap(f"read {path} as {entry['reader']}: {counts}", width, subsequent_indent="  ")
        for note in entry["notes"]:
            lines += textwrap.wrap(note, width, initial_indent="  - ", subsequent_indent="    ")
    if df.attrs["unread"]:
        unread = textwrap.shorten(", ".join(df.attrs["unread"]), 400, placeholder=" …")
        lines += textwrap.wrap(f"no training record in: {unread}", width, subsequent_indent="  ")
    return [safe(line.rstrip()) for line in lines]


def _records(table: pd.DataFrame) -> str:
    text = f"{len(table):,} rows, steps {table['step'].min():g} to {table['step'].max():g}"
    if "rank" in table and table["rank"].nunique() > 1:
        text += f", {table['rank'].nunique()} ranks"
    if "elapsed_s" in table and table["elapsed_s"].max() > 0:
        text += f", {format_span(NS_PER_S * float(table['elapsed_s'].max() - table['elapsed_s'].min()))}"
    return text


def _columns(table: pd.DataFrame, width: int) -> list[str]:
    """Return a row for each measurement, then for each column whose name is not known; of many for the first."""
    max_columns = 24
    names = [name for name in table if name in METRICS] + unknown_columns(table)
    rows = [["column", "first", "last", "min", "median", "max"]]
    for name in names[:max_columns]:
        known = table[name][np.isfinite(table[name])]
        if len(known):
            unit = f" ({FIELDS[name].unit})" if name in FIELDS and FIELDS[name].unit else ""
            numbers = (known.iloc[0], known.iloc[-1], known.min(), known.median(), known.max())
            shown = (f"{value:,.0f}" if 1000 <= abs(value) < 1e8 else f"{value:.4g}" for value in numbers)
            rows.append([f"{name}{unit}", *shown])
    more = [f"  and {len(names) - max_columns} more: --json has all"] if len(names) > max_columns else []
    return [*(f"  {line}" for line in render_rows(rows, max(width - 2, 72))), *more]
