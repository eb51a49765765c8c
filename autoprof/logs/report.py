"""The text report of ``autoprof inspect``: a block of lines per run, then a line per file."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._core.units import NS_PER_S, format_ns, format_span
from .._reports.text import elide, fit, safe
from .fields import RATES, unknown_columns

if TYPE_CHECKING:
    import pandas as pd

_MIN_TEXT_WIDTH: Final = 20


def render_report(df: pd.DataFrame, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """Return the lines of the report, ``width`` cells wide; a run's facts may be longer in a narrow terminal."""
    max_unread = 5
    lines: list[str] = []
    for run, table in df.groupby("run", observed=True, sort=False):
        lines += [elide(str(run), width), *(f"  {name:<11}{text}" for name, text in _facts(table))]
        lines += [*_other_columns(table, width), ""]
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


def _facts(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the label and the text of each fact about a run that its columns give."""

    def values_of(name: str) -> Any:
        return table[name].dropna() if name in table else ()

    facts = [("records", _records(table))]
    for name in ("loss", "val_loss"):
        values = values_of(name)
        if len(values):
            ends = f"first {values.iloc[0]:.4g}   last {values.iloc[-1]:.4g}"
            text = f"{ends}   min {values.min():.4g} at step {table['step'][values.idxmin()]:g}"
            facts.append((name.replace("_", " "), text))
    for name, unit in RATES.items():
        values = values_of(name)
        if len(values):
            text = f"median {_short(values.median())}   P10 {_short(values.quantile(0.1))} {unit}"
            facts.append((name.replace("_per_s", "/s"), text))
    values = values_of("step_time_s")
    if len(values):
        median, p90 = (format_ns(NS_PER_S * seconds) for seconds in (values.median(), values.quantile(0.9)))
        facts.append(("step time", f"median {median}   P90 {p90}"))
    if "data_time" in table and "step_time_s" in table:
        share = (table["data_time"] / table["step_time_s"].where(table["step_time_s"] > 0)).median()
        if share == share:
            median = format_ns(table["data_time"].median() * NS_PER_S)
            facts.append(("data wait", f"median {median}, {100 * share:.1f} % of the step"))
    values = values_of("memory")
    if len(values):
        facts.append(("memory", f"largest {values.max():.2f} GiB"))
    values = values_of("gpu_util")
    if len(values):
        facts.append(("GPU", f"utilisation: mean {values.mean():.0f} %, P10 {values.quantile(0.1):.0f} %"))
    values = values_of("lr")
    if len(values):
        facts.append(("lr", f"first {values.iloc[0]:.3g}   last {values.iloc[-1]:.3g}"))
    return facts


def _other_columns(table: pd.DataFrame, width: int) -> list[str]:
    """Return a row for each column whose name is not known, of many only for the first."""
    number_width = 12
    max_columns = 12
    names = unknown_columns(table)
    if not names:
        return []
    name_width = max(width - 2 - 4 * number_width, _MIN_TEXT_WIDTH)
    heads = "".join(f"{word:>{number_width}}" for word in ("min", "median", "max", "last"))
    rows = [f"  {fit('column', name_width)}{heads}"]
    for name in names[:max_columns]:
        known = table[name][np.isfinite(table[name])]
        numbers = (known.min(), known.median(), known.max(), known.iloc[-1])
        rows.append(f"  {fit(name, name_width)}" + "".join(f"{_short(value):>{number_width}}" for value in numbers))
    if len(names) > max_columns:
        rows.append(f"  and {len(names) - max_columns} more: --json has all")
    return rows


def _records(table: pd.DataFrame) -> str:
    text = f"{len(table):,} rows, steps {table['step'].min():g} to {table['step'].max():g}"
    if "rank" in table and table["rank"].nunique() > 1:
        text += f", {table['rank'].nunique()} ranks"
    if "elapsed_s" in table and table["elapsed_s"].max() > 0:
        text += f", {format_span(NS_PER_S * float(table['elapsed_s'].max() - table['elapsed_s'].min()))}"
    return text


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
