"""``python -m benchmarks.rank_faults``: run the faults and the healthy runs; write a page."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..table import markdown, parser, write, write_raw
from .faults import KINDS, RANKS, Run, draw_runs
from .forms import FORMS, IMPOSSIBLE, STEP_LENGTHS
from .group import Group
from .network import Network
from .score import is_sampled, judge

GOAL: Final = 0.95
FAULTS: Final = 72
HEALTHY: Final = 36
FORM_FAULTS: Final = 10
FORM_HEALTHY: Final = 2
SEED: Final = 43

INTRO: Final = """\
# Is the slow rank named{where}?

**Result**: {result}

Four gloo ranks train 100 steps of about 45 ms with default settings. One of them has a fault: persistent, recurring,
or in a single step. A verdict is right if rank, module and phase are. The faults are drawn from seed {seed}. In
other forms of training delays are in proportion to the steps.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 where too few faults are found, a healthy run is accused, or a run hangs."""
    made = parser("benchmarks.rank_faults", __doc__)
    made.add_argument("--faults", type=int, help=f"runs with a fault (default: {FAULTS}, or {FORM_FAULTS} a form)")
    made.add_argument("--healthy", type=int, help=f"runs without one (default: {HEALTHY}, or {FORM_HEALTHY} a form)")
    made.add_argument("--seed", type=int, default=SEED, help="of all runs (default: %(default)s)")
    made.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="only faults of these kinds")
    made.add_argument("--forms", action="store_true", help="train in the forms other than DDP")
    options = made.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    usual = (1, 1) if options.quick else (FORM_FAULTS, FORM_HEALTHY) if options.forms else (FAULTS, HEALTHY)
    faults = usual[0] if options.faults is None else options.faults
    healthy = usual[1] if options.healthy is None else options.healthy
    forms = [form for form in FORMS if form != "ddp"] if options.forms else ["ddp"]
    entries: list[dict[str, Any]] = []
    left_out = 0
    for form in forms[: 1 if options.quick else None]:
        kinds = tuple(kind for kind in options.kinds if kind not in IMPOSSIBLE.get(form, ()))
        runs = [_of_form(run, form) for run in draw_runs(faults, healthy, options.seed, kinds)]
        _train_all([run for run in runs if not _needs_network(run)], None, entries, options)
        with_network = [run for run in runs if _needs_network(run)]
        network = _network() if with_network else None
        if network is not None:
            _train_all(with_network, network, entries, options)
            network.close()
        else:
            left_out += len(with_network)
    write(options, page(entries, options.seed, left_out, forms=options.forms))
    return int(not has_passed(entries))


def _of_form(run: Run, form: str) -> Run:
    """Return the run in another form: with its length of steps, and the modules of a pipeline's stage."""
    fault = run.fault
    if fault is not None and fault.kind != "batches":  # larger batches take longer in proportion
        length = STEP_LENGTHS.get(form, 1.0)  # each packet is delayed, and a longer step has more of them
        fault = replace(fault, amount=fault.amount / length if fault.kind == "network" else fault.amount * length)
    if form == "gpipe" and fault is not None and fault.module is not None:
        fault = replace(fault, module=f"layer{fault.rank}")
    return Run(run.number, run.seed, form, run.steps, fault)


def _needs_network(run: Run) -> bool:
    return run.fault is not None and run.fault.kind == "network"


def _network() -> Network | None:
    try:
        return Network(RANKS)
    except (OSError, subprocess.CalledProcessError):
        return None


def _train_all(
    runs: list[Run], network: Network | None, entries: list[dict[str, Any]], options: argparse.Namespace
) -> None:
    """Train the runs on one group of processes; a new one after a rank has died or a run has hung."""
    group: Group | None = None
    for run in runs:
        group = group or Group(network)
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


def page(entries: Sequence[Mapping[str, Any]], seed: int, left_out: int, *, forms: bool) -> Iterator[str]:
    """Yield the lines of the page."""
    faults = [one for one in entries if one["run"]["fault"] is not None]
    healthy = [one for one in entries if one["run"]["fault"] is None]
    accused = sum(bool(one["verdict"]["accused"]) for one in healthy)
    result = (
        f"{_right(faults)} of {len(faults)} faults right in rank, module and phase; "
        f"{accused} of {len(healthy)} healthy runs accused"
    )
    yield INTRO.format(where=" in other forms of training" * forms, result=result, seed=seed)
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for one in entries:
        fault, form = one["run"]["fault"], one["run"]["form"]
        kind, pattern = ("none", "") if fault is None else (fault["kind"], fault["pattern"])
        groups[(form, kind) if forms else (kind, pattern)].append(one)
    header = (*(("form", "fault") if forms else ("fault", "pattern")), "runs", "right", "accused", "hung")
    rows = [
        (*key, len(of), _right(of), _count(of, "accused"), sum(one["hung"] for one in of)) for key, of in groups.items()
    ]
    yield from markdown(header, sorted(rows))
    unseen = [one for one in faults if not one["verdict"]["sampled"]]
    if unseen:
        yield f"\n{len(unseen)} faults were in no step that the slow rank recorded; {_right(unseen)} of them are right."
    if left_out:
        yield f"\n{left_out} faults need a network of their own (root, /dev/net/tun): left out."


def _right(entries: Sequence[Mapping[str, Any]]) -> int:
    return _count(entries, "right")


def _count(entries: Sequence[Mapping[str, Any]], key: str) -> int:
    return sum(bool(one["verdict"][key]) for one in entries)


def has_passed(entries: list[dict[str, Any]]) -> bool:
    """Return whether enough faults are found, no healthy run is accused and none hangs."""
    faults = [entry["verdict"]["right"] for entry in entries if entry["run"]["fault"] is not None]
    healthy = [entry["verdict"]["right"] for entry in entries if entry["run"]["fault"] is None]
    return sum(faults) >= GOAL * len(faults) and all(healthy) and not any(entry["hung"] for entry in entries)


if __name__ == "__main__":
    raise SystemExit(main())
