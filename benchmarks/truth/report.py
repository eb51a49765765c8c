"""Render the comparison as a table for the terminal and as a page of the docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from autoprof._core.units import format_ms

from .compare import Result

MEDIAN: Final = 0.02
WORST: Final = 0.08
BACKWARD: Final = 0.01
"""Bounds: the median error of all modules, the worst one, and the error of all of backward."""
SHOWN: Final = 12
"""Modules with the largest errors that are listed."""

_HEAD: Final = ("model", "step", "compared", "median", "worst", "backward")

INTRO: Final = """\
# Are the times correct?

`python -m benchmarks.truth` compares autoprof's times with an independent account of the same steps, made in the
same process from the events of `torch.profiler`. The two share no code. A disturbance of a step affects both.

The independent account measures

- **forward** by a profiler range around the `forward` of every module, in a plain wrapper inside autoprof's hooks;
- **recompute** by the ranges inside the engine's work on a node: of modules, and of `torch.utils.checkpoint`, for the
  module that contains the checkpoint;
- **backward by module** by nodes: a node takes the time from the start of the engine's work on it to the start of the
  next node's, minus the recompute in it. Its sequence number leads to the operator that created it, and so to the
  modules in whose ranges that operator ran. A parameter's `AccumulateGrad` belongs to the node before it;
- **all of backward** by a range around each call of `torch.autograd.backward`;
- **on a GPU** after moving both ends of an interval to the device: to the end of the kernels launched before, by
  correlation id, or to the host time if the device was idle.

A module's error is the median over the steps of autoprof's time divided by the independent time, minus one. It counts
for every module of at least {floor}, in each phase. Bounds: a median error of at most {median:.0%}, none above
{worst:.0%}, and all backward passes together within {backward:.0%}.
"""


def verdict(results: Sequence[Result]) -> list[tuple[str, bool]]:
    """Return each bound with the measured error, and whether it is kept. Without a comparison none is."""
    errors = [error for result in results for error in result.errors]
    if not errors:
        return [("no module took long enough to be compared", False)]
    backward = max(abs(result.backward_error) for result in results)
    bounds = (
        ("median error", median(errors), MEDIAN),
        ("worst error", max(errors), WORST),
        ("worst error of all of backward", backward, BACKWARD),
    )
    return [
        (f"{'kept' if found <= bound else 'MISSED'}: {name} {found:.2%}, at most {bound:.0%}", found <= bound)
        for name, found, bound in bounds
    ]


def _rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    for result in results:
        errors = result.errors
        yield (
            result.name,
            format_ms(result.step_ns),
            str(len(errors)),
            f"{median(errors):.2%}" if errors else "-",
            f"{max(errors):.2%}" if errors else "-",
            f"{result.backward_error:+.2%}",
        )


def _worst(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    lines = [(result.name, line) for result in results for line in result.lines]
    lines.sort(key=lambda entry: -abs(entry[1].error))
    for name, line in lines[:SHOWN]:
        times = (format_ms(line.referee_ns), format_ms(line.autoprof_ns))
        yield name, f"{line.fqn} {line.phase}", *times, f"{line.error:+.2%}"


_TEXTS: Final = frozenset({"model", "module and phase", "module", "phase"})
_WORST_HEAD: Final = ("model", "module and phase", "independent", "autoprof", "error")


def render(results: Sequence[Result], skipped: Sequence[str]) -> str:
    """Return the table for the terminal."""
    lines = [*_columns(_HEAD, list(_rows(results))), "", "The largest errors:"]
    lines += _columns(_WORST_HEAD, list(_worst(results)))
    lines += ["", *(text for text, _ in verdict(results))]
    lines += [f"not compared: {name}" for name in skipped]
    return "\n".join(lines)


def render_modules(result: Result) -> str:
    """Return all compared modules of one case, the longest first."""
    lines = sorted(result.lines, key=lambda line: -line.referee_ns)
    head = ("module", "phase", "independent", "autoprof", "error", "worst step")
    rows = [
        (
            line.fqn,
            line.phase,
            format_ms(line.referee_ns),
            format_ms(line.autoprof_ns),
            f"{line.error:+.2%}",
            f"{line.worst_step:+.2%}",
        )
        for line in lines
    ]
    return "\n".join([result.name, *_columns(head, rows), ""])


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    texts = sum(name in _TEXTS for name in head)  # the first columns; the others are numbers
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = zip(row, widths, strict=True)
        yield "  ".join([cell.ljust(n) if i < texts else cell.rjust(n) for i, (cell, n) in enumerate(cells)]).rstrip()


def render_page(results: Sequence[Result], skipped: Sequence[str], machine: Mapping[str, Any]) -> str:
    """Return ``benchmarks/results/truth.md``."""
    floor = "100 µs" if any(result.floor_ns < 1_000_000 for result in results) else "1 ms"
    text = [INTRO.format(floor=floor, median=MEDIAN, worst=WORST, backward=BACKWARD), ""]
    where = machine["gpu"] or f"{machine['cpu']}, {machine['threads']} thread"
    text += [f"Measured on {where}, torch {machine['torch']}, {results[0].steps if results else 0} steps a model.", ""]
    text += ["## Are the bounds kept?", "", *(f"- {line}" for line, _ in verdict(results)), ""]
    text += [*_markdown(_HEAD, _rows(results)), "", "## The largest errors", ""]
    text += [*_markdown(_WORST_HEAD, _worst(results)), ""]
    unseen = [f"{result.name}: {name}" for result in results for name in result.unseen]
    if unseen:
        text += ["Seen by the independent account alone: " + "; ".join(unseen) + ".", ""]
    if skipped:
        text += ["Not compared: " + "; ".join(skipped) + ".", ""]
    text += ["Every module and every step's extreme: `benchmarks/results/truth.json`."]
    return "\n".join(text) + "\n"


def _markdown(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"
