"""Train one model in this process, by default and between two full records; write the rows of the three as JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import stdev
from typing import Any, Final

import torch

import autoprof
from autoprof._targets import CutRules, group_tree
from autoprof.frame import MODULE_PHASES, TRAINING_LANE, StepFrame
from autoprof.summary import Summary
from autoprof.testing import ListSink

from .models import Training, chosen

FULL_STEPS: Final = 30
"""Steps of each of the two full records, which have each of them."""
WARM_STEPS: Final = 5
"""Steps before the first record: the first ones of a process allocate and load."""


def main(name: str, steps: int, output: Path) -> None:
    """Train by default for so many steps, with a full record before and after; write the three records."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore")  # the models' own, about their configuration
    case = next(case for case in chosen(name) if case.name == name)
    os.chdir(tempfile.mkdtemp(prefix="hot-path-"))  # the default writes a run's folder
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        training = case.make()
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
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
