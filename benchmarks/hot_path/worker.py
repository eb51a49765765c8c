"""Train one model in this process under one kind of recording; write the rows of the run as JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch

import autoprof
from autoprof._targets import CutRules, group_tree
from autoprof.frame import MODULE_PHASES
from autoprof.summary import Summary

from .models import chosen


def main(name: str, mode: str, steps: int, output: Path) -> None:
    """Train for so many steps, ``mode`` is default or full; write the record."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore")  # the models' own, about their configuration
    case = next(case for case in chosen(name) if case.name == name)
    os.chdir(tempfile.mkdtemp(prefix="hot-path-"))  # the default writes a run's folder
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        model, optimizer, step = case.make()
        session = autoprof.instrument(model, every_module(model) if mode == "full" else None, optimizer=optimizer)
        for _ in range(steps):
            step()
        session.close()
    output.write_text(json.dumps(to_record(session.summary(), group_tree(model).name)), encoding="utf-8")


def every_module(model: torch.nn.Module) -> dict[str, Any]:
    """Return a configuration that times every module in every step, repeated blocks under one name."""
    groups = [group for group in group_tree(model).below() if group.hidden is None and group.nodes[0].called]
    return {**CutRules(model).mapping(groups), "sample": {"budget": None}, "sinks": {}, "flops": "off"}


def to_record(summary: Summary, root: str) -> dict[str, Any]:
    """Return self time by name and phase, each as a share of the steps that it was recorded in."""
    shares: dict[str, dict[str, float]] = {}
    for row in summary.rows:
        if row.phase in MODULE_PHASES and row.lane == 0 and row.total_ns:
            phases = shares.setdefault(row.name, {})
            phases[row.phase.value] = phases.get(row.phase.value, 0.0) + row.share * row.self_ns / row.total_ns
    return {"root": root, "shares": shares, "recorded": summary.steps, "step_ns": summary.step_mean_ns}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
