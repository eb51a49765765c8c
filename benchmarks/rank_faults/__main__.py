"""``python -m benchmarks.rank_faults``: run the faults and the healthy runs; print a table, write JSON."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..machine import describe
from .faults import KINDS, RANKS, Run, draw_runs
from .forms import FORMS, IMPOSSIBLE, STEP_LENGTHS
from .group import Group
from .network import Network
from .score import is_sampled, judge

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "rank_faults.json"
GOAL: Final = 0.95


def main(arguments: list[str] | None = None) -> int:
    """Return 1 when too few faults are found, a healthy run is accused, or a run hangs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank_faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="runs with a fault (default: %(default)s)")
    parser.add_argument("--healthy", type=int, default=100, help="runs without one (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=18, help="of all runs (default: %(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="only faults of these kinds")
    parser.add_argument("--form", choices=tuple(FORMS), default="ddp", help="the form of training (default: ddp)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where to write the JSON")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    kinds = tuple(kind for kind in options.kinds if kind not in IMPOSSIBLE.get(options.form, ()))
    if not kinds:
        parser.error(f"the form {options.form} has no such fault")
    runs = draw_runs(options.faults, options.healthy, options.seed, kinds)
    runs = [_of_form(run, options.form) for run in runs]
    began = time.monotonic()
    entries: list[dict[str, Any]] = []

    def save() -> None:
        """Write all runs so far: those of an interrupted command are kept."""
        results = {
            "machine": describe(),
            "seconds": time.monotonic() - began,
            "seed": options.seed,
            "form": options.form,
            "runs": sorted(entries, key=lambda entry: entry["run"]["number"]),
        }
        options.results.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")

    _train_all([run for run in runs if not _needs_network(run)], None, entries, save)
    with_network = [run for run in runs if _needs_network(run)]
    if with_network:
        network = _network()
        if network is None:
            print(
                f"{len(with_network)} runs need a network of their own (root, /dev/net/tun): left out", file=sys.stderr
            )
        else:
            _train_all(with_network, network, entries, save)
            network.close()
    print("\n".join(table(entries)))
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
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
    runs: list[Run], network: Network | None, entries: list[dict[str, Any]], save: Callable[[], None]
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
        save()
        print(_line(run, verdict, result), file=sys.stderr, flush=True)
    if group is not None:
        group.end()


def _line(run: Run, verdict: dict[str, Any], result: dict[str, Any]) -> str:
    fault = run.fault
    what = "healthy" if fault is None else f"{fault.kind} {fault.pattern} rank {fault.rank} {fault.module or ''}"
    why = next((one["why"] for one in result["findings"] if one["rule"] == "straggler"), "")
    state = "hung" if result["hung"] else "right" if verdict["right"] else "WRONG"
    return f"{run.number:>4} {result['seconds']:5.1f} s {state:<6} {what}{'' if verdict['right'] else ': ' + why}"


def table(entries: list[dict[str, Any]]) -> list[str]:
    """Return a line for each kind and pattern, and the sums."""
    cells: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        fault = entry["run"]["fault"]
        cells["healthy" if fault is None else fault["kind"], "" if fault is None else fault["pattern"]].append(entry)
    lines = ["| fault | pattern | runs | right | accused | hung |", "|---|---|---|---|---|---|"]
    lines += [f"| {kind} | {pattern} | {_counts(found)} |" for (kind, pattern), found in sorted(cells.items())]
    faults = [entry for entry in entries if entry["run"]["fault"] is not None]
    lines.append(f"| all faults | | {_counts(faults)} |")
    if faults:
        right = sum(entry["verdict"]["right"] for entry in faults)
        lines.append(
            f"{right} of {len(faults)} faults right in rank, module and phase ({right / len(faults):.1%}; goal 95 %)"
        )
        unseen = [one for one in faults if not one["verdict"]["sampled"]]
        missed = sum(not one["verdict"]["right"] for one in unseen)
        lines.append(
            f"{len(unseen)} faults were in no step that the slow rank has recorded; {missed} of them are not right"
        )
    return lines


def _counts(entries: list[dict[str, Any]]) -> str:
    right, accused, hung = (
        (
            sum(bool(value) for value in values)
            for values in zip(
                *((one["verdict"]["right"], one["verdict"]["accused"], one["hung"]) for one in entries), strict=True
            )
        )
        if entries
        else (0, 0, 0)
    )
    return f"{len(entries)} | {right} | {accused} | {hung}"


def has_passed(entries: list[dict[str, Any]]) -> bool:
    """Return whether enough faults are found, no healthy run is accused and none hangs."""
    faults = [entry["verdict"]["right"] for entry in entries if entry["run"]["fault"] is not None]
    healthy = [entry["verdict"]["right"] for entry in entries if entry["run"]["fault"] is None]
    return sum(faults) >= GOAL * len(faults) and all(healthy) and not any(entry["hung"] for entry in entries)


if __name__ == "__main__":
    raise SystemExit(main())
