"""The text report of ``autoprof inspect``: a block of lines per run, then a line per file."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._reports.text import cells, elide, fit, pad, safe
from .._units import NS_PER_S, format_ns, format_span
from .series import RATES, is_constant, unknown_columns

if TYPE_CHECKING:
    import pandas as pd

_MAX_UNREAD: Final = 5
"""Names of files without a record that are listed."""
_MIN_PATH_WIDTH: Final = 20
_MAX_COLUMNS: Final = 12
"""Columns of unknown names with a row in the report of a run."""
_MAX_PLAIN: Final = 1e8
"""Larger numbers are written with an exponent."""
_NUMBER_WIDTH: Final = 12
_MIN_NAME_WIDTH: Final = 12
_MAX_RUNS_IN_LINE: Final = 4
_LINE_LABELS: Final = {"val_loss": "val loss", "step_time_s": "step time", **dict.fromkeys(RATES, "")}


def render_report(df: pd.DataFrame, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """Return the lines of the report, ``width`` cells wide; a run's facts may be longer in a narrow terminal."""
    lines: list[str] = []
    for run, table in df.groupby("run", observed=True, sort=False):
        lines += [elide(str(run), width), *(f"  {name:<11}{text}" for name, text in _facts(table))]
        lines += [*_other_columns(table, width), ""]
    for entry in df.attrs.get("files", []):
        path = elide(entry["path"], max(width - 40, _MIN_PATH_WIDTH))
        lines += _wrap(f"read {path} as {entry['reader']}: {_counts(entry)}", width)
        for note in entry["notes"]:
            lines += _wrap(note, width, "  - ")
    unread = df.attrs.get("unread", [])
    if unread:
        more = f" and {len(unread) - _MAX_UNREAD} more" if len(unread) > _MAX_UNREAD else ""
        lines += _wrap(f"no training record in: {', '.join(unread[:_MAX_UNREAD])}{more}", width)
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
    names = unknown_columns(table)
    varying = [name for name in names if not is_constant(table[name])]
    constant = [f"{name} {_constant(table[name])}" for name in names if name not in varying]
    shown = varying[:_MAX_COLUMNS]
    rows = []
    if shown:
        room = max(width - 2 - 4 * _NUMBER_WIDTH, _MIN_NAME_WIDTH)
        wide = min(room, max(cells(name) for name in ["column", *shown]) + 1)
        head = "".join(f"{word:>{_NUMBER_WIDTH}}" for word in ("min", "median", "max", "last"))
        rows = [f"  {pad('column', wide)}{head}"]
        for name in shown:
            known = _finite(table[name])
            numbers = (known.min(), known.median(), known.max(), known.iloc[-1])
            rows.append(f"  {fit(name, wide)}" + "".join(f"{_short(value):>{_NUMBER_WIDTH}}" for value in numbers))
    if len(varying) > len(shown):
        rows.append(f"  and {_count(len(varying) - len(shown), 'more column')}: --json has all")
    if constant:
        more = f" and {len(constant) - _MAX_COLUMNS} more" if len(constant) > _MAX_COLUMNS else ""
        rows += _wrap(f"constant: {', '.join(constant[:_MAX_COLUMNS])}{more}", width, "  ")
    return rows


def _constant(values: Any) -> str:
    known = _finite(values)
    return _short(known.iloc[0]) + (" (in one record)" if len(known) == 1 and len(values) > 1 else "")


def _finite(values: Any) -> Any:
    return values[np.isfinite(values)]


def render_line(df: pd.DataFrame, *, encoding: str = "utf-8") -> str:
    """Return the last step of each run with its latest values, as one line."""
    parts = []
    for run, table in df.groupby("run", observed=True, sort=False):
        facts = [f"step {table['step'].iloc[-1]:,.0f}", *_latest(table)]
        parts.append((f"{run}: " if df["run"].nunique() > 1 else "") + "  ".join(facts))
    more = [f"and {len(parts) - _MAX_RUNS_IN_LINE} more"] if len(parts) > _MAX_RUNS_IN_LINE else []
    return safe("; ".join(parts[:_MAX_RUNS_IN_LINE] + more), encoding)


def _latest(table: pd.DataFrame) -> list[str]:
    """Return the latest value of the columns that a training log usually has."""
    facts = []
    for name in ("loss", "val_loss", "step_time_s", *RATES, "lr"):
        values: Any = table[name].dropna() if name in table else ()
        if len(values):
            value, unit = values.iloc[-1], f" {RATES[name]}" if name in RATES else ""
            shown = format_ns(NS_PER_S * value) if name == "step_time_s" else f"{_short(value)}{unit}"
            facts.append(f"{_LINE_LABELS.get(name, name)} {shown}".strip())
    return facts


def _records(table: pd.DataFrame) -> str:
    text = f"{len(table):,} rows, steps {table['step'].min():g} to {table['step'].max():g}"
    if "rank" in table and table["rank"].nunique() > 1:
        text += f", {table['rank'].nunique()} ranks"
    if "elapsed_s" in table and table["elapsed_s"].max() > 0:
        text += f", {format_span(NS_PER_S * float(table['elapsed_s'].max() - table['elapsed_s'].min()))}"
    return text


def _counts(entry: dict[str, Any]) -> str:
    skipped = f"{_count(entry['skipped'], 'line')} skipped" if entry["skipped"] else "no line skipped"
    return f"{_count(entry['lines'], 'line')}, {_count(entry['records'], 'record')}, {skipped}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    rest = " " * len(indent) or "  "
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=rest, break_on_hyphens=False)


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < _MAX_PLAIN else f"{value:.4g}"
