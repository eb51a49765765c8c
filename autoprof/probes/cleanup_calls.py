"""Time the calls inside a step that free memory by hand: ``gc.collect`` and ``empty_cache`` of torch's devices."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, Final

import torch

from .._capture.recorder import Recorder
from .._process.replace import Attribute, InCompiler, Replacement
from ._base import ProbeContext, ProbeFactory
from ._timed_calls import TimedCallProbe, time_calls

MODULES: Final = ("accelerator", "cuda", "mps", "xpu")
"""Modules of torch that have ``empty_cache``; ``torch.accelerator`` has it in newer versions."""
FUNCTIONS: Final[tuple[tuple[Any, str, str, InCompiler], ...]] = (
    (gc, "collect", "gc.collect", InCompiler.PRESENT),
    *(
        (getattr(torch, module), "empty_cache", f"torch.{module}.empty_cache", InCompiler.RETIRED)
        for module in MODULES
        if hasattr(getattr(torch, module, None), "empty_cache")
    ),
)
"""Each function by its module; a program that imported it by name before the session calls the original.

``gc.collect`` breaks a graph, and so does its replacement, so the graphs are the same and calls are also recorded after
a compilation. ``empty_cache`` can be part of a graph.
"""


class CleanupProbe(TimedCallProbe):
    """Record the calls that free memory."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, listeners, _find_replacements, "calls that free memory")


listeners: Final[list[CleanupProbe]] = []
"""The probes that record now."""
_replacements: dict[str, Replacement] = {}


def _find_replacements() -> Iterator[Replacement]:
    for owner, name, call, in_compiler in FUNCTIONS:
        if call not in _replacements:
            _replacements[call] = Replacement(
                Attribute(owner, name), time_calls(call), in_compiler=in_compiler, listeners=listeners
            )
        yield _replacements[call]


def _make(context: ProbeContext) -> CleanupProbe:
    return CleanupProbe(context.recorder)


PROBE = ProbeFactory(_make)
