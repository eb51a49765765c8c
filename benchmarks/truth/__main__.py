"""``python -m benchmarks.truth``: autoprof's times by module against an account made from ``torch.profiler``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import torch

from autoprof.base.units import format_ms

from ..models import TRUTH
from ..table import markdown, parser, write, write_raw
from .compare import Result, referee_case

MEDIAN: Final = 0.02
WORST: Final = 0.08
BACKWARD: Final = 0.01
"""Bounds: the median error of all modules, the worst one, and the error of all of backward."""
SHOWN: Final = 12
"""Modules with the largest errors that are listed."""

INTRO: Final = """\
# Are the times correct?

**Result**: {result}

The times of autoprof are compared with an independent account of the same steps, made in the same process from the
events of `torch.profiler`. The two share no code. A disturbance of a step affects both. The independent account
measures

- **forward** by a profiler range around the `forward` of every module, in a plain wrapper inside autoprof's hooks;
- **recompute** by the ranges inside the engine's work on a node: of modules, and of `torch.utils.checkpoint`, for the
  module that contains the checkpoint;
- **backward by module** by nodes: a node takes the time from the start of the engine's work on it to the start of the
  next node's, minus the recompute in it. Its sequence number leads to the operator that created it, and so to the
  modules in whose ranges that operator ran. A parameter's `AccumulateGrad` belongs to the node before it;
- **all of backward** by a range around each call of `torch.autograd.backward`.

A module's error is the median over the steps of autoprof's time divided by the independent time, minus one. It counts
for every module of at least 1 ms, in each phase. Bounds: a median error of at most {median:.0%}, none above
{worst:.0%}, and all backward passes together within {backward:.0%}. One thread of torch, {steps} steps a model.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, write. Return 1 where a bound is missed."""
    made = parser("benchmarks.truth", __doc__)
    made.add_argument("--models", default="", help="only models whose name has one of these words, by comma")
    made.add_argument("--steps", type=int, default=9, help="steps that count, of each model (default: %(default)s)")
    options = made.parse_args(arguments)
    words, steps = ("small gpt", 2) if options.quick else (options.models, options.steps)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # the models' own, about their configuration
    results: list[Result] = []
    skipped: list[str] = []
    for model in TRUTH:
        if not any(word.strip().lower() in model.name.lower() for word in words.split(",")):
            continue
        if not model.is_available:
            skipped.append(f"{model.name} ({model.needs} is not installed)")
            continue
        results.append(referee_case(model, steps))
        write_raw(options, {"skipped": skipped, "results": [result.to_dict() for result in results]})
        print(" | ".join(_row(results[-1])), file=sys.stderr, flush=True)
    write(options, page(results, skipped, steps))
    return int(not all(is_kept for _, is_kept in verdict(results)))


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


def _row(result: Result) -> tuple[str, ...]:
    errors = result.errors
    middle, worst = (f"{median(errors):.2%}", f"{max(errors):.2%}") if errors else ("-", "-")
    return result.name, format_ms(result.step_ns), str(len(errors)), middle, worst, f"{result.backward_error:+.2%}"


def page(results: Sequence[Result], skipped: Sequence[str], steps: int) -> Iterator[str]:
    """Yield the lines of the page."""
    errors = [error for result in results for error in result.errors] or [float("nan")]
    backward = max((abs(result.backward_error) for result in results), default=float("nan"))
    result = (
        f"median error {median(errors):.2%}, worst {max(errors):.2%}; backward within {backward:.2%}; "
        f"{len(results)} models"
    )
    yield INTRO.format(result=result, median=MEDIAN, worst=WORST, backward=BACKWARD, steps=steps)
    yield from (f"- {line}" for line, _ in verdict(results))
    yield ""
    yield from markdown(("model", "step", "compared", "median", "worst", "backward"), map(_row, results))
    yield from ("", "## The largest errors", "")
    lines = sorted(((one.name, line) for one in results for line in one.lines), key=lambda entry: -abs(entry[1].error))
    yield from markdown(
        ("model", "module and phase", "independent", "autoprof", "error"),
        (
            (
                name,
                f"{line.fqn} {line.phase}",
                format_ms(line.referee_ns),
                format_ms(line.autoprof_ns),
                f"{line.error:+.2%}",
            )
            for name, line in lines[:SHOWN]
        ),
    )
    unseen = [f"{result.name}: {name}" for result in results for name in result.unseen]
    if unseen:
        yield from ("", f"Seen by the independent account alone: {'; '.join(unseen)}.")
    if skipped:
        yield from ("", f"Not compared: {'; '.join(skipped)}.")


if __name__ == "__main__":
    sys.exit(main())
