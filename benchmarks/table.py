"""The command line and the page of a part: its options, its tables, its limits, and the file that it writes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from .stats import Estimate

Row = Sequence[Any]


def parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a part's command, with the options that all parts have."""
    made = argparse.ArgumentParser(prog=f"python -m {command}", description=description)
    made.add_argument("--quick", action="store_true", help="only show that the command works: no figure counts")
    made.add_argument("--page", type=Path, help="write the page to this file; it is printed as well")
    made.add_argument("--raw", type=Path, help="write all samples as JSON to this file")
    return made


def write(options: argparse.Namespace, lines: Iterable[str], raw: Any = None) -> None:
    """Print the page, and write it and the raw results to the files of the command line."""
    text = "\n".join(lines).strip() + "\n"
    print(text, end="", flush=True)
    write_raw(options, raw)
    if options.page is not None:
        options.page.write_text(text, encoding="utf-8")


def write_raw(options: argparse.Namespace, raw: Any) -> None:
    """Write the raw results, as there are by now."""
    if options.raw is not None and raw is not None:
        options.raw.write_text(json.dumps(raw) + "\n", encoding="utf-8")


def markdown(header: Row, rows: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(map(str, header))} |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in row)} |"


def figures(name: str, header: Row, rows: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of a table that pages of the documentation take over by its name."""
    yield f"<!-- figures: {name} -->"
    yield from markdown(header, rows)
    yield "<!-- end -->"


def interval(one: Estimate, digits: int = 2, unit: str = "") -> str:
    """Return an estimate with its interval."""
    return f"{one.value:.{digits}f}{unit} [{one.low:.{digits}f}, {one.high:.{digits}f}]"


def percent(one: Estimate) -> Estimate:
    """Return a ratio to bare as the percent beyond it."""
    return Estimate(100 * (one.value - 1), 100 * (one.low - 1), 100 * (one.high - 1), one.rounds)


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit with its figure; ``kept`` is None where the figure has no limit."""

    subject: str
    limit: str
    measured: str
    kept: bool | None
    is_clear: bool = True
    """False if the interval reaches over the limit or the rounds were few."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        word = {True: "kept", False: "**not kept**", None: ""}[self.kept]
        return word + ", inconclusive" * (self.kept is not None and not self.is_clear)


def at_most(subject: str, limit: float, one: Estimate, digits: int = 2, unit: str = "") -> Bound:
    """Compare an estimate with its upper limit."""
    text = "smaller than the noise" if isnan(one.value) else interval(one, digits, unit)
    return Bound(subject, f"≤ {limit:g}{unit}", text, one.value <= limit, one.excludes(limit))


def limits(bounds: Sequence[Bound], name: str = "limits") -> Iterator[str]:
    """Yield the table of the limits, which documents take over by its name."""
    rows = [(bound.subject, bound.limit, bound.measured, bound.verdict) for bound in bounds]
    return figures(name, ("figure", "limit", "measured", ""), rows)


def kept(bounds: Sequence[Bound]) -> str:
    """Return how many limits are kept, in words."""
    judged = [bound for bound in bounds if bound.kept is not None]
    return f"{sum(bool(bound.kept) for bound in judged)} of {len(judged)} limits are kept"
