"""Render the comparison for the terminal and as a page of the docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from autoprof._core.units import format_ms

from .agreement import CERTAIN, POINTS, RELATIVE, TOP, Agreement, Record, agreed

SHOWN: Final = 5
"""Rows of each model that the page lists."""

INTRO: Final = f"""\
# Does the default find the hot path?

`python -m benchmarks.hot_path` trains each model in a process of its own: with one line and no configuration,
`autoprof.instrument(model, optimizer=optimizer)`, and before and after that with a record of every module in every
step. It compares the modules that take longest, by the time that each takes itself, without the modules inside it.
Repeated blocks are one row, in both. The full record is the mean of the two.

A module without a row counts for the row around it. They agree if the {TOP} longest modules of the full record
have rows of their own in the default, every share is equal, and the order is the same where the shares differ.

Two shares of the step are equal if they differ by at most {POINTS * 100:.0f} points, {RELATIVE:.0%},
or {CERTAIN:.0f} standard errors of their difference: from step to step, and between the two full records.
"""


def render(results: Sequence[Agreement], skipped: Sequence[str]) -> str:
    """Return one line for each model, and a line for each problem."""
    lines = [f"{agreed(results)} of {len(results)} models agree"]
    for result in results:
        lines.append(f"{'agrees   ' if not result.problems else 'DISAGREES'}  {result.name}")
        lines.extend(f"             {problem}" for problem in result.problems)
    lines.extend(f"not run: {one}" for one in skipped)
    return "\n".join(lines)


def render_page(results: Sequence[Agreement], skipped: Sequence[str], machine: Mapping[str, Any]) -> str:
    """Return the page: the verdicts, then the longest rows of each model."""
    return "\n".join([INTRO, *_verdicts(results, skipped, machine), *(line for one in results for line in _rows(one))])


def _verdicts(results: Sequence[Agreement], skipped: Sequence[str], machine: Mapping[str, Any]) -> Iterator[str]:
    yield f"Measured on {machine['cpu']}, {machine['threads']} thread, torch {machine['torch']}."
    yield ""
    yield f"## {agreed(results)} of {len(results)} models agree"
    yield ""
    yield "| model | step | steps | recorded by default | rows by default | rows in the full record | agrees |"
    yield "|---|---|---|---|---|---|---|"
    for result in results:
        cells = (
            result.name, format_ms(result.default.step_ns), result.steps, result.default.recorded,
            len(result.default.shares), len(result.full.shares), "no" if result.problems else "yes",
        )  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    for result in results:
        for problem in result.problems:
            yield f"- {result.name}: `{problem}`"
    yield from (f"- Not run: {one}" for one in skipped)
    if skipped or any(result.problems for result in results):
        yield ""


def _rows(result: Agreement) -> Iterator[str]:
    yield f"## {result.name}"
    yield ""
    yield "| by default | share | forward, backward | in the full record | share | forward, backward |"
    yield "|---|---|---|---|---|---|"
    default, full = result.default.top(SHOWN), result.full.top(SHOWN)
    for place in range(max(len(default), len(full))):
        yield f"| {_cells(result.default, default, place)} | {_cells(result.full, full, place)} |"
    yield ""


def _cells(record: Record, names: Sequence[str], place: int) -> str:
    if place >= len(names):
        return " | | "
    name = names[place]
    phases = record.shares[name]
    backward = phases.get("backward", 0.0)
    forward = record.share(name) - backward
    return f"`{name}` | {record.share(name):.1%} | {forward:.1%}, {backward:.1%}"
