"""Run the steps of a case, have both sides account for each of them, and find the errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

import autoprof
from autoprof.testing import ListSink

from ..models import Model, train
from .account import Account, Key, Referee
from .ours import account_of
from .trace import Recording, module_ranges

WARMUP = 3
"""Steps before the first that counts: gradients are being allocated, and the profiler sets itself up."""
FLOOR_NS = 1_000_000
"""The shortest time of a module that is compared."""


@dataclass(frozen=True, slots=True)
class Line:
    """One module in one phase: medians over steps of both sides, and of the error."""

    fqn: str
    phase: str
    referee_ns: int
    autoprof_ns: int
    error: float


@dataclass(frozen=True, slots=True)
class Result:
    """One case. ``backward_error`` covers all backward passes."""

    name: str
    steps: int
    step_ns: int
    lines: tuple[Line, ...]
    backward_ns: int
    backward_error: float
    unseen: tuple[str, ...] = ()

    @property
    def errors(self) -> list[float]:
        """The errors without their signs, of all lines."""
        return [abs(line.error) for line in self.lines]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def referee_case(case: Model, steps: int) -> Result:
    """Profile each step of a case with both sides at once and compare them."""
    torch.manual_seed(0)
    model, _, step = train(case)
    sink, traces, modules = ListSink(), [], called_modules(model)
    config = {
        "targets": [{"match": "|".join(re.escape(fqn) for fqn in modules)}],
        "sinks": {}, "step": "manual", "sample": {"every": 1, "warmup": 0, "budget": None},
    }  # fmt: skip
    with module_ranges(model), autoprof.instrument(model, config, sinks=[sink]) as session:
        for number in range(WARMUP + steps):
            recording = Recording()
            with recording:
                step()
            session.step()
            if number >= WARMUP:
                traces.append(recording.trace)
    frames = sink.frames[WARMUP:]
    pairs = [(Referee(trace).run(), account_of(frame)) for trace, frame in zip(traces, frames, strict=True)]
    step_ns = int(median(frame.step_ns for frame in frames))
    return compare(case.name, pairs, FLOOR_NS, step_ns=step_ns)


def called_modules(model: nn.Module) -> list[str]:
    """Return the fqns of all modules that have a ``forward``, as plain containers have not; '' is the model itself."""
    return [fqn for fqn, module in model.named_modules() if type(module).forward is not nn.Module.forward]


def compare(name: str, pairs: Sequence[tuple[Account, Account]], floor_ns: int, *, step_ns: int = 0) -> Result:
    """Compare the two accounts of each step: of every module and phase that takes at least ``floor_ns``."""
    keys: dict[Key, None] = {}
    for theirs, _ in pairs:
        keys.update(dict.fromkeys(theirs.modules))
    lines, unseen = [], []
    for key in keys:
        theirs_ns = [theirs.modules.get(key, 0) for theirs, _ in pairs]
        if median(theirs_ns) < floor_ns:
            continue
        ours_ns = [ours.modules.get(key, 0) for _, ours in pairs]
        if not any(ours_ns):
            unseen.append(f"{key[0]} {key[1]}")
        errors = [_error(ours, theirs) for ours, theirs in zip(ours_ns, theirs_ns, strict=True) if theirs]
        times = int(median(theirs_ns)), int(median(ours_ns))
        lines.append(Line(key[0] or "(model)", str(key[1]), *times, median(errors)))
    lines.sort(key=lambda line: -abs(line.error))
    backward = [_error(ours.backward_ns, theirs.backward_ns) for theirs, ours in pairs if theirs.backward_ns]
    return Result(
        name=name,
        steps=len(pairs),
        step_ns=step_ns,
        lines=tuple(lines),
        backward_ns=int(median(theirs.backward_ns for theirs, _ in pairs)),
        backward_error=median(backward) if backward else 0.0,
        unseen=tuple(unseen),
    )


def _error(ours: int, theirs: int) -> float:
    return ours / theirs - 1
