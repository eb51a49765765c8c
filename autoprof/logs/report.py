"""The table of ``autoprof inspect``: a run a block of a few lines, whatever the width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._reports.text import elide, safe
from .._units import format_ns

if TYPE_CHECKING:
    import pandas as pd

_RATES = {"throughput": "samples/s", "tokens_per_s": "tokens/s"}


def render_report(df: pd.DataFrame, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """Return what there is to say of each run, and of each file what was read and what was not, in ``width`` cells."""
    lines: list[str] = []
    for run, table in df.groupby("run", observed=True, sort=False):
        lines += [elide(str(run), width), *(f"  {name:<11}{text}" for name, text in _facts(table)), ""]
    for entry in df.attrs.get("files", []):
        lines += _wrapped(f"read {_where(entry['path'], width)} as {entry['reader']}: {_counts(entry)}", width)
        for note in entry["notes"]:
            lines += _wrapped(note, width, "  - ")
    unread = df.attrs.get("unread", [])
    if unread:
        lines += _wrapped(
            f"not a log: {', '.join(unread[:5])}{f' and {len(unread) - 5} more' if len(unread) > 5 else ''}", width
        )
    return [safe(line.rstrip(), encoding) for line in lines]


def _facts(table: pd.DataFrame) -> list[tuple[str, str]]:
    facts = [("records", _records(table))]
    for name in ("loss", "val_loss"):
        if name in table and table[name].notna().any():
            values = table[name].dropna()
            least = values.idxmin()
            ends = f"first {values.iloc[0]:.4g}   last {values.iloc[-1]:.4g}"
            text = f"{ends}   min {values.min():.4g} at step {table['step'][least]:g}"
            facts.append((name.replace("_", " "), text))
    for name, unit in _RATES.items():
        if name in table and table[name].notna().any():
            values = table[name].dropna()
            facts.append(
                (
                    name.replace("_per_s", "/s"),
                    f"median {_short(values.median())}   P10 {_short(values.quantile(0.1))} {unit}",
                )
            )
    if "step_time_s" in table and table["step_time_s"].notna().any():
        values = table["step_time_s"].dropna() * 1e9
        facts.append(
            (
                "step time",
                "   ".join(
                    f"{word} {format_ns(ns)}"
                    for word, ns in (("median", values.median()), ("P90", values.quantile(0.9)))
                ),
            )
        )
    if "data_time" in table and "step_time_s" in table:
        share = (table["data_time"] / table["step_time_s"].where(table["step_time_s"] > 0)).median()
        if share == share:
            facts.append(
                ("data wait", f"median {format_ns(table['data_time'].median() * 1e9)}, {100 * share:.1f} % of the step")
            )
    if "memory" in table and table["memory"].notna().any():
        facts.append(("memory", f"largest {table['memory'].max():.2f} GiB"))
    if "gpu_util" in table and table["gpu_util"].notna().any():
        facts.append(
            ("GPU", f"utilisation: mean {table['gpu_util'].mean():.0f} %, P10 {table['gpu_util'].quantile(0.1):.0f} %")
        )
    if "lr" in table and table["lr"].notna().any():
        values = table["lr"].dropna()
        facts.append(("lr", f"first {values.iloc[0]:.3g}   last {values.iloc[-1]:.3g}"))
    return facts


def _records(table: pd.DataFrame) -> str:
    text = f"{len(table):,} rows, steps {table['step'].min():g} to {table['step'].max():g}"
    if "rank" in table and table["rank"].nunique() > 1:
        text += f", {table['rank'].nunique()} ranks"
    if "elapsed_s" in table and table["elapsed_s"].max() > 0:
        text += f", {_duration(float(table['elapsed_s'].max() - table['elapsed_s'].min()))}"
    return text


def _counts(entry: dict[str, Any]) -> str:
    skipped = f"{_count(entry['skipped'], 'line')} skipped" if entry["skipped"] else "no line skipped"
    return f"{_count(entry['lines'], 'line')}, {_count(entry['records'], 'record')}, {skipped}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _where(path: str, width: int) -> str:
    return elide(path, max(width - 40, 20))


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    import textwrap

    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=" " * len(indent) or "  ", break_on_hyphens=False
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
