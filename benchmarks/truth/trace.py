"""The events of ``torch.profiler`` for one step as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from .checkpoints import checkpoint_ranges

RANGE: Final = "truth::"
"""Prefix of module ranges; the module's fqn follows."""
PASS: Final = "truth-pass::"
"""Prefix of the range around a call of ``torch.autograd.backward``."""
EVALUATION: Final = "autograd::engine::evaluate_function: "
"""Prefix of the profiler's event for one autograd node, with its hooks and gradient accumulation."""


class Interval(NamedTuple):
    """One event. ``sequence`` is -1 where the profiler gives none.

    ``forward_thread`` is that on which a node was made, 0 where the event is of no node.
    """

    name: str
    thread: int
    start_ns: int
    end_ns: int
    sequence: int = -1
    forward_thread: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """One step: ``ranges`` are calls of modules, ``evaluations`` nodes of a backward pass, ``operators`` the rest.

    ``passes`` are the calls of ``torch.autograd.backward``, from the call to the return.
    """

    ranges: Sequence[Interval] = ()
    evaluations: Sequence[Interval] = ()
    operators: Sequence[Interval] = ()
    passes: Sequence[Interval] = ()


class Recording:
    """Profile one step; ``trace`` has the outcome when the context is left."""

    def __init__(self) -> None:
        self._profile: Any = profile(activities=[ProfilerActivity.CPU])
        self.trace = Trace()

    def __enter__(self) -> Recording:
        self._profile.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._profile.__exit__(*error)
        # torch.profiler's own ``events()`` has microseconds as floats and takes 20 times as long.
        self.trace = sort_events(self._profile.profiler.kineto_results.events())


def sort_events(events: Sequence[Any]) -> Trace:
    """Sort the events of a kineto result by kind."""
    ranges, passes, evaluations, operators = [], [], [], []
    for event in events:
        if event.start_thread_id() != event.end_thread_id() or event.is_async():
            continue
        found = Interval(
            event.name(),
            event.start_thread_id(),
            event.start_ns(),
            event.end_ns(),
            event.sequence_nr(),
            event.fwd_thread_id(),
        )
        if found.name.startswith(RANGE):
            ranges.append(found)
        elif found.name.startswith(PASS):
            passes.append(found)
        elif found.name.startswith(EVALUATION):
            evaluations.append(found)
        elif event.scope() == 0:
            operators.append(found)
    return Trace(ranges, evaluations, operators, passes)


@contextmanager
def module_ranges(model: nn.Module) -> Iterator[None]:
    """Put a profiler range around every module's ``forward``, every recomputation and ``torch.autograd.backward``.

    They are plain wrappers, no hooks, and inside anybody's hooks that come later.
    """
    wrapped: list[Any] = []
    around: list[str] = []
    backward = torch.autograd.backward
    for fqn, module in model.named_modules():
        if type(module).forward is nn.Module.forward or "forward" in vars(module):
            continue
        module.forward = _in_range(module.forward, RANGE + fqn, around)
        wrapped.append(module)
    torch.autograd.backward = _in_range(backward, PASS, [])
    try:
        with checkpoint_ranges(lambda: around[-1] if around else ""):
            yield
    finally:
        torch.autograd.backward = backward
        for module in wrapped:
            del module.forward


def _in_range(forward: Any, name: str, around: list[str]) -> Any:
    span = torch._C._profiler._RecordFunctionFast  # a tenth of the cost of ``record_function``

    def call(*args: Any, **kwargs: Any) -> Any:
        around.append(name)
        try:
            with span(name):
                return forward(*args, **kwargs)
        finally:
            around.pop()

    return call
