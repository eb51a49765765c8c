"""``python -m benchmarks.rank_faults``: run the faults and the healthy runs; write a page."""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..table import markdown, parser, write, write_raw
from .faults import KINDS, Run, draw_runs
from .forms import FORMS, IMPOSSIBLE, STEP_LENGTHS
from .group import Group
from .score import is_sampled, judge

GOAL: Final = 0.95
FAULTS: Final = {"ddp": 21}
OTHER_FAULTS: Final = 6
"""Runs with a fault: under DDP each kind with each pattern once, in each other form some of them."""
HEALTHY: Final = {"ddp": 12}
OTHER_HEALTHY: Final = 1
SEED: Final = 43

INTRO: Final = """\
# Is the slow rank named?

**Result**: {result}

Four gloo ranks train 100 steps of about 45 ms with default settings. One of them has a fault: persistent, recurring,
or in a single step. A verdict is right if rank, module and phase are. The faults are drawn from seed {seed}. In
other forms than DDP a step is longer, and the delays are in proportion.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 where too few faults are found, a healthy run is accused, or a run hangs."""
    made = parser("benchmarks.rank_faults", __doc__)
    made.add_argument("--faults", type=int, help="runs of each form with a fault")
    made.add_argument("--healthy", type=int, help="runs of each form without one")
    made.add_argument("--seed", type=int, default=SEED, help="of all runs (default: %(default)s)")
    made.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="only faults of these kinds")
    made.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="only these forms of training")
    options = made.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.quick:
        options.forms, options.faults, options.healthy = ["ddp"], 1, 1
    entries: list[dict[str, Any]] = []
    for form in options.forms:
        kinds = tuple(kind for kind in options.kinds if kind not in IMPOSSIBLE.get(form, ()))
        faults = FAULTS.get(form, OTHER_FAULTS) if options.faults is None else options.faults
        healthy = HEALTHY.get(form, OTHER_HEALTHY) if options.healthy is None else options.healthy
        runs = [_of_form(run, form) for run in draw_runs(faults, healthy, f"{options.seed}/{form}", kinds)]
        _train_all(runs, entries, options)
    write(options, page(entries, options.seed))
    return int(not has_passed(entries))


def _of_form(run: Run, form: str) -> Run:
    """Return the run in another form: with its length of steps, and the modules of a pipeline's stage."""
    fault = run.fault
    if fault is not None and fault.kind != "batches":  # larger batches take longer in proportion
        fault = replace(fault, amount=fault.amount * STEP_LENGTHS.get(form, 1.0))
    if form == "gpipe" and fault is not None and fault.module is not None:
        fault = replace(fault, module=f"layer{fault.rank}")
    return Run(run.number, run.seed, form, run.steps, fault)


def _train_all(runs: list[Run], entries: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Train the runs on one group of processes; a new one after a rank has died or a run has hung."""
    group: Group | None = None
    for run in runs:
        group = group or Group()
        result = group.train(run)
        if result["hung"] or result["ended"] or result["errors"]:
            group.end()
            group = None
        verdict = judge(run, result) | {"sampled": is_sampled(run, result)}
        recorded = [len(steps) for steps in result["recorded"]]
        entries.append({"run": run.to_dict(), "verdict": verdict, **result, "recorded": recorded})
        write_raw(options, entries)
        print(_line(run, verdict, result), file=sys.stderr, flush=True)
    if group is not None:
        group.end()


def _line(run: Run, verdict: dict[str, Any], result: dict[str, Any]) -> str:
    fault = run.fault
    what = "healthy" if fault is None else f"{fault.kind} {fault.pattern} rank {fault.rank} {fault.module or ''}"
    why = next((one["why"] for one in result["findings"] if one["rule"] == "straggler"), "")
    state = "hung" if result["hung"] else "right" if verdict["right"] else "WRONG"
    return f"{run.number:>4} {result['seconds']:5.1f} s {state:<6} {what}{'' if verdict['right'] else ': ' + why}"


def page(entries: Sequence[Mapping[str, Any]], seed: int) -> Iterator[str]:
    """Yield the lines of the page: the runs by form, and by fault."""
    faults = [one for one in entries if one["run"]["fault"] is not None]
    healthy = [one for one in entries if one["run"]["fault"] is None]
    result = (
        f"{_count(faults, 'right')} of {len(faults)} faults right in rank, module and phase; "
        f"{_count(healthy, 'accused')} of {len(healthy)} healthy runs accused"
    )
    yield INTRO.format(result=result, seed=seed)
    for header, key in (("form", _form), ("fault", _fault)):
        groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for one in entries:
            groups[key(one)].append(one)
        rows = [
            (name, len(of), _count(of, "right"), _count(of, "accused"), sum(one["hung"] for one in of))
            for name, of in groups.items()
        ]
        yield from (*markdown((header, "runs", "right", "accused", "hung"), sorted(rows)), "")
    unseen = [one for one in faults if not one["verdict"]["sampled"]]
    if unseen:
        right = _count(unseen, "right")
        yield f"\n{len(unseen)} faults were in no step that the slow rank recorded; {right} of them are right."


def _form(entry: Mapping[str, Any]) -> str:
    return str(entry["run"]["form"])


def _fault(entry: Mapping[str, Any]) -> str:
    fault = entry["run"]["fault"]
    return "none" if fault is None else f"{fault['kind']}, {fault['pattern']}"


def _count(entries: Sequence[Mapping[str, Any]], key: str) -> int:
    return sum(bool(one["verdict"][key]) for one in entries)


def has_passed(entries: list[dict[str, Any]]) -> bool:
    """Return whether enough faults are found, no healthy run is accused and none hangs."""
    faults = [entry["verdict"]["right"] for entry in entries if entry["run"]["fault"] is not None]
    healthy = [entry["verdict"]["right"] for entry in entries if entry["run"]["fault"] is None]
    return sum(faults) >= GOAL * len(faults) and all(healthy) and not any(entry["hung"] for entry in entries)


if __name__ == "__main__":
    raise SystemExit(main())
