"""``Experiment``: the change of a program that would confirm a finding, in words that a program can apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..base.summary import Finding

Change = Literal[
    "loader.num_workers",
    "loader.persistent_workers",
    "loader.pin_memory",
    "checkpointing",
    "optimizer.fused",
    "batch_size",
    "precision",
    "attention",
    "communication.bucketed",
    "call.every",
    "module.code",
    "shapes.constant",
    "debug.switch",
    "gc.freeze",
    "tensors.kept",
    "allocator.expandable_segments",
    "span.add",
    "rank.work",
    "profiler.targets",
    "other",
]
"""The part of a program to change. ``other``: the finding's advice is text only."""
Operation = Literal["set", "increase", "decrease", "edit"]
"""``edit``: a person or a program has to change code; no setting does it."""
Quantity = Literal["step_ns", "sample_ns", "wall_ns", "peak_bytes", "held_bytes"]
"""The quantity that falls: the mean step, the time of a sample, the step with excluded time, the peak, memory held."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One change of a program, and the quantity that is less afterwards if the finding is right.

    ``value`` is the new value for ``set``. ``target`` is the module, call or switch to change, None where there is only
    one.
    """

    change: Change
    operation: Operation = "set"
    value: bool | int | str | None = None
    target: str | None = None
    quantity: Quantity = "step_ns"


def less_often(finding: Finding) -> Experiment:
    """Return the experiment for a call that is made too often: the one with the most time, as ``gc.collect``."""
    sites = finding.evidence.get("sites") or finding.evidence.get("lines") or [{}]
    called = sites[0].get("call") or sites[0].get("function") or finding.name
    return Experiment("call.every", "increase", target=called)


def edit_module(finding: Finding) -> Experiment:
    """Return the experiment for a module whose own code is slow."""
    return Experiment("module.code", "edit", target=finding.name)
