"""``python -m benchmarks.hot_path``: does the default name the modules that a full record shows to be longest?

Each model trains in a process of its own: by default, and with a full record before and after. The same names have to
come first, with the same shares of the step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import stdev
from typing import Any, Final

import torch

import autoprof
from autoprof._core.units import format_ms
from autoprof._targets import CutRules, group_tree
from autoprof.frame import MODULE_PHASES, TRAINING_LANE, StepFrame
from autoprof.summary import Summary
from autoprof.testing import ListSink

from .digest import ROOT
from .models import HOT_PATH, Model, Training, train
from .table import markdown, parser, write, write_raw

STEPS: Final = 200
FULL_STEPS: Final = 30
"""Steps of each of the two full records, which have each of them."""
WARM_STEPS: Final = 5
"""Steps before the first record: the first ones of a process allocate and load."""
SHOWN: Final = 5
"""Rows of each model that the page lists."""
TOP: Final = 3
"""The longest rows that have to agree."""
POINTS: Final = 0.02
RELATIVE: Final = 0.10
"""Two shares of the step are equal if they differ by at most 2 points, 10 % of the larger one, or their uncertainty."""
CERTAIN: Final = 2.0
"""Standard errors of a difference that is no accident, in 19 of 20 cases."""


@dataclass(frozen=True, slots=True)
class Record:
    """One run: the share of the step that each name takes itself, by phase, in so many recorded steps."""

    shares: Mapping[str, Mapping[str, float]]
    errors: Mapping[str, float]
    """The standard error of each name's share: from step to step, and between two records."""
    recorded: int
    step_ns: int

    def share(self, name: str) -> float:
        """Return the share of all phases; zero for a name without a row."""
        return sum(self.shares.get(name, {}).values())

    def top(self, count: int = TOP) -> list[str]:
        """Return the names that take longest, the longest first."""
        return sorted(self.shares, key=lambda name: -self.share(name))[:count]

    def averaged_with(self, later: Record) -> Record:
        """Return the mean of two records of one program; half of their difference is an error too.

        Machine and program drift between the two records; a share measured in between may lie anywhere from one to the
        other.
        """
        shares: dict[str, dict[str, float]] = {}
        for name in {**self.shares, **later.shares}:
            one, other = self.shares.get(name, {}), later.shares.get(name, {})
            shares[name] = {phase: (one.get(phase, 0.0) + other.get(phase, 0.0)) / 2 for phase in {**one, **other}}
        errors = {}
        for name in shares:
            drift = self.share(name) - later.share(name)
            errors[name] = math.hypot(self.errors.get(name, 0.0), later.errors.get(name, 0.0), drift) / 2
        return Record(shares, errors, self.recorded + later.recorded, (self.step_ns + later.step_ns) // 2)

    def within(self, names: Collection[str]) -> Record:
        """Return the record with these names alone: each module without a row counts for the row around it."""
        shares: dict[str, dict[str, float]] = {}
        errors: dict[str, float] = {}
        for name, phases in self.shares.items():
            row = _row_around(name, names)
            total = shares.setdefault(row, {})
            for phase, share in phases.items():
                total[phase] = total.get(phase, 0.0) + share
            errors[row] = math.hypot(errors.get(row, 0.0), self.errors.get(name, 0.0))
        return replace(self, shares=shares, errors=errors)


@dataclass(frozen=True)
class Agreement:
    """The default and the full record of one model, trained for ``steps`` steps by default."""

    name: str
    steps: int
    default: Record
    full: Record

    @cached_property
    def same_rows(self) -> Record:
        """The full record with the rows of the default."""
        return self.full.within(self.default.shares.keys())

    @cached_property
    def problems(self) -> list[str]:
        """Say each point in which they do not agree."""
        return [*self._unnamed(), *self._shares(), *self._order()]

    def _unnamed(self) -> list[str]:
        """Name the longest modules without a row that are certainly longer than those that follow them."""
        full = self.full
        after = full.share(full.top(TOP + 1)[-1]) if len(full.shares) > TOP else 0.0
        return [
            f"{name}, {full.share(name):.1%} of the step, has no row"
            for name in full.top()
            if name not in self.default.shares and full.share(name) - CERTAIN * full.errors.get(name, 0.0) > after
        ]

    def _shares(self) -> list[str]:
        names = dict.fromkeys([*self.full.top(), *self.default.top()])
        return [
            f"{name}: {self.default.share(name):.1%} by default, {self.same_rows.share(name):.1%} in the full record"
            for name in names
            if name in self.default.shares
            and not close(self.default.share(name), self.same_rows.share(name), self._error(name))
        ]

    def _order(self) -> list[str]:
        """Compare neighbours in the default's order by the full record, where the difference is certain."""
        full = self.same_rows
        return [
            f"{second} is longer than {first} in the full record"
            for first, second in pairwise(self.default.top(TOP + 1))
            if full.share(second) > full.share(first)
            and not close(full.share(first), full.share(second), self._error(first, second))
        ]

    def _error(self, *names: str) -> float:
        """Return the standard error of a difference between shares of these names."""
        records = self.default, self.same_rows
        return math.hypot(*(record.errors.get(name, 0.0) for name in names for record in records))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.name,
            "steps": self.steps,
            "problems": self.problems,
            "default": _plain(self.default),
            "full": _plain(self.full),
        }


def _row_around(name: str, rows: Collection[str]) -> str:
    """Return the name itself, or the longest beginning of it that is a row."""
    row = name
    while row not in rows and "/" in row:
        row = row.rpartition("/")[0]
    return row if row in rows else name


def close(one: float, other: float, error: float = 0.0) -> bool:
    """Return whether two shares are equal within the bounds; ``error`` is the standard error of their difference."""
    return abs(one - other) <= max(POINTS, RELATIVE * max(one, other), CERTAIN * error)


def agreed(results: Sequence[Agreement]) -> int:
    """Return the number of models without a problem."""
    return sum(not result.problems for result in results)


def _plain(record: Record) -> dict[str, Any]:
    return {
        "recorded": record.recorded,
        "step_ns": record.step_ns,
        "shares": {name: dict(phases) for name, phases in record.shares.items()},
        "errors": dict(record.errors),
    }


INTRO: Final = f"""\
# Does the default find the hot path?

**Result**: {{result}}

Each model trains in a process of its own: with one line and no configuration,
`autoprof.instrument(model, optimizer=optimizer)`, and before and after that with a record of every module in every
step. The modules that take longest are compared, by the time that each takes itself, without the modules inside it.
Repeated blocks are one row, in both. The full record is the mean of the two.

A module without a row counts for the row around it. They agree if the {TOP} longest modules of the full record
have rows of their own in the default, every share is equal, and the order is the same where the shares differ.

Two shares of the step are equal if they differ by at most {POINTS * 100:.0f} points, {RELATIVE:.0%},
or {CERTAIN:.0f} standard errors of their difference: from step to step, and between the two full records.
"""


def page(results: Sequence[Agreement], skipped: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the page: the verdicts, then the longest rows of each model."""
    yield INTRO.format(result=f"{agreed(results)} of {len(results)} known architectures agree")
    header = ("model", "step", "steps", "recorded by default", "rows by default", "rows in the full record", "agrees")
    yield from markdown(
        header,
        (
            (
                one.name, format_ms(one.default.step_ns), one.steps, one.default.recorded, len(one.default.shares),
                len(one.full.shares), "no" if one.problems else "yes",
            )
            for one in results
        ),
    )  # fmt: skip
    yield ""
    yield from (f"- {one.name}: `{problem}`" for one in results for problem in one.problems)
    yield from (f"- Not run: {one}" for one in skipped)
    for result in results:
        yield from ("", f"## {result.name}", "")
        places = range(max(len(record.top(SHOWN)) for record in (result.default, result.full)))
        columns = ("by default", "share", "forward, backward", "in the full record", "share", "forward, backward")
        yield from markdown(columns, ((*_cells(result.default, at), *_cells(result.full, at)) for at in places))


def _cells(record: Record, place: int) -> tuple[str, str, str]:
    names = record.top(SHOWN)
    if place >= len(names):
        return "", "", ""
    name = names[place]
    backward = record.shares[name].get("backward", 0.0)
    return f"`{name}`", f"{record.share(name):.1%}", f"{record.share(name) - backward:.1%}, {backward:.1%}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, write. Return 1 where a model disagrees or fails."""
    made = parser("benchmarks.hot_path", __doc__)
    made.add_argument("--only", default="", help="only models whose name has one of these words, by comma")
    made.add_argument("--worker", nargs=3, metavar=("NAME", "STEPS", "FILE"), help=argparse.SUPPRESS)
    options = made.parse_args(arguments)
    if options.worker:
        _work(options.worker[0], int(options.worker[1]), Path(options.worker[2]))
        return 0
    words, steps = ("small gpt", 20) if options.quick else (options.only, STEPS)
    results: list[Agreement] = []
    skipped: list[str] = []
    failed = False
    for model in HOT_PATH:
        if not any(word.strip().lower() in model.name.lower() for word in words.split(",")):
            continue
        if not model.is_available:
            skipped.append(f"{model.name} ({model.needs} is not installed)")
            continue
        try:
            results.append(compare(model, steps))
        except subprocess.CalledProcessError as error:
            failed = True
            skipped.append(f"{model.name}: {(error.stderr or 'no message').strip().splitlines()[-1]}")
        else:
            print(model.name, *(results[-1].problems or ["agrees"]), sep="\n    ", file=sys.stderr, flush=True)
        write_raw(options, {"skipped": skipped, "results": [result.to_dict() for result in results]})
    write(options, page(results, skipped))
    return int(failed or any(result.problems for result in results))


def compare(model: Model, steps: int) -> Agreement:
    """Train the model in a process of its own: by default, and with a full record before and after."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "records.json"
        command = [sys.executable, "-m", "benchmarks.hot_path", "--worker", model.name, str(steps), str(output)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        records = {kind: Record(**one) for kind, one in json.loads(output.read_text(encoding="utf-8")).items()}
    return Agreement(model.name, steps, records["default"], records["before"].averaged_with(records["after"]))


def _work(name: str, steps: int, output: Path) -> None:
    """Train by default for so many steps, with a full record before and after; write the three records."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore")  # the models' own, about their configuration
    os.chdir(tempfile.mkdtemp(prefix="hot-path-"))  # the default writes a run's folder
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        training = train(next(model for model in HOT_PATH if model.name == name))
        for _ in range(WARM_STEPS):
            training[2]()
        full, full_steps = every_module(training[0]), min(steps, FULL_STEPS)
        records = {
            "before": record(training, full, full_steps),
            "default": record(training, None, steps),
            "after": record(training, full, full_steps),
        }
    output.write_text(json.dumps(records), encoding="utf-8")


def record(training: Training, config: dict[str, Any] | None, steps: int) -> dict[str, Any]:
    """Train for so many steps in a session of its own; return its record."""
    model, optimizer, step = training
    sink = ListSink()
    session = autoprof.instrument(model, config, optimizer=optimizer, sinks=[sink])
    for _ in range(steps):
        step()
    session.close()
    return to_record(session.summary(), sink.frames)


def every_module(model: torch.nn.Module) -> dict[str, Any]:
    """Return a configuration that times every module in every step, repeated blocks under one name."""
    groups = [group for group in group_tree(model).below() if group.hidden is None and group.nodes[0].called]
    return {**CutRules(model).mapping(groups), "sample": {"budget": None}, "sinks": {}, "flops": "off"}


def to_record(summary: Summary, frames: Sequence[StepFrame]) -> dict[str, Any]:
    """Return self time by name and phase as shares of the step, each name's standard error, and the steps' number."""
    shares: dict[str, dict[str, float]] = {}
    for row in summary.rows:
        if row.phase in MODULE_PHASES and row.lane == TRAINING_LANE and row.total_ns:
            phases = shares.setdefault(row.name, {})
            phases[row.phase.value] = phases.get(row.phase.value, 0.0) + row.share * row.self_ns / row.total_ns
    errors = _standard_errors([frame for frame in frames if not frame.warmup and frame.cut == frames[-1].cut])
    return {"shares": shares, "errors": errors, "recorded": summary.steps, "step_ns": summary.step_mean_ns}


def _standard_errors(frames: Sequence[StepFrame]) -> dict[str, float]:
    """Return the standard error of the mean share of each name over the frames."""
    shares: dict[str, list[float]] = {}
    for at, frame in enumerate(frames):
        layout = frame.layout
        own = layout.self_ns(frame.total_ns).tolist()
        for name, phase, lane, ns in zip(layout.names, layout.phases, layout.lanes, own, strict=True):
            if phase in MODULE_PHASES and lane == TRAINING_LANE:
                shares.setdefault(name, [0.0] * len(frames))[at] += ns / frame.step_ns
    enough = {name: of_steps for name, of_steps in shares.items() if len(of_steps) > 1}
    return {name: stdev(of_steps) / math.sqrt(len(of_steps)) for name, of_steps in enough.items()}


if __name__ == "__main__":
    sys.exit(main())
