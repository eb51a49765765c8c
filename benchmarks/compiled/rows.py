"""The rows of recorded steps, by module and beside the modules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import autoprof
from autoprof.base.frame import StepFrame
from autoprof.base.summary import Summary

from .case import PHASES, Training

RUNTIME: Final = "[compiled runtime]"
UNNAMED: Final = "[kernels without names]"
CONFIG: Final[dict[str, Any]] = {
    "targets": [{"match": ".*"}],
    "sample": {"budget": None},
    "sinks": {},
    "flight_recorder": {"mode": "off"},
    "flops": "off",
    "monitor": "off",
}
"""Every module is a target and every step is recorded."""


class Frames:
    """A sink that keeps the recorded steps."""

    def __init__(self) -> None:
        self.frames: list[StepFrame] = []
        self.notes: list[str] = []

    def write(self, frame: StepFrame) -> None:
        """Keep the step."""
        self.frames.append(frame)

    def close(self, summary: Summary) -> None:
        """Keep the notes."""
        self.notes = list(summary.notes)

    @property
    def reasons(self) -> list[str]:
        """The notes on modules without rows."""
        return [note for note in self.notes if "torch.compile" in note or "no call of the model" in note]


def open_session(training: Training, sink: Frames, **config: Any) -> Any:
    """Open a session on the model of a case, or on the module that the case's compilation made of it.

    A key whose value is None is left to the default.
    """
    from torch import nn

    target = training.run if isinstance(training.run, nn.Module) else training.model
    options = CONFIG | config
    options = {key: value for key, value in options.items() if value is not None}
    return autoprof.instrument(target, options, optimizer=training.optimizer, sinks=[sink])


def own_operations(frame: StepFrame, paths: Collection[str]) -> dict[str, list[float]]:
    """Return the milliseconds of modules in each phase, with the modules inside, counting the own time of ``paths``.

    A fused kernel's row counts for the module around it; the rows of the compiled runtime do not count.
    """
    layout = frame.layout
    own = layout.self_ns(frame.total_ns)
    found: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(PHASES))
    for at, phase in enumerate(map(str, layout.phases)):
        if phase not in PHASES or RUNTIME in layout.names[at]:
            continue
        around = at
        while around >= 0 and layout.fqns[around] is None:
            around = layout.parents[around]
        if around < 0 or layout.fqns[around] not in paths:
            continue
        counted = set()
        while around >= 0:
            fqn = layout.fqns[around]
            if fqn is not None and fqn not in counted:
                counted.add(fqn)
                found[fqn][PHASES.index(phase)] += own[at] / 1e6
            around = layout.parents[around]
    return found


def named_share(frames: Iterable[StepFrame]) -> float | None:
    """Return the share of the time of kernels that are in rows with names, the compiled runtime apart."""
    named = unnamed = 0.0
    for frame in frames:
        layout = frame.layout
        for name, phase, ns in zip(layout.names, layout.phases, layout.self_ns(frame.total_ns), strict=True):
            if str(phase) in PHASES and RUNTIME not in name and "(" not in name:
                named += ns * (UNNAMED not in name)
                unnamed += ns * (UNNAMED in name)
    return named / (named + unnamed) if named + unnamed else None


def rows(frame: StepFrame) -> dict[tuple[str, str], float]:
    """Return the milliseconds of each row by phase: a module by its path, another row as ``path/[its name]``."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    spans = frame.spans
    for span in spans:
        if str(span.phase) not in PHASES:
            continue
        name = span.fqn
        if name is None and "[" in span.name and span.parent is not None:
            name = f"{spans[span.parent].fqn or ''}/{span.name[span.name.index('[') :]}"
        if name is not None:
            found[str(span.phase), name] += span.host_ns / 1e6
    return found


def counted(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many of the judged models are right."""
    verdicts = [one["verdict"] for one in results.values()]
    return f"{verdicts.count('right')} of {len(verdicts) - verdicts.count('not judged') - verdicts.count('not run')}"


def problems(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each figure that is wrong, and for each model without a result."""
    yield ""
    for name, one in results.items():
        yield from (f"- {name}: `{wrong}`" for wrong in one.get("wrong", ()))
        if "error" in one:
            yield f"- {name}: {one['verdict']}: `{one['error'].splitlines()[-1]}`"
        if one["verdict"] == "whole":
            yield f"- {name}: timed whole: {one['reasons'][0].rpartition('around them: ')[2]}"


def share(part: float | None) -> str:
    """Return a share in percent."""
    return "-" if part is None else f"{part:.1%}"
