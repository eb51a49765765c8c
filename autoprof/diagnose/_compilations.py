"""Statistics of the functions that ``torch.compile`` compiled again during training, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..probes.compilations import CompilationProbe, CompiledFunction
from ._calls import shorten_path


@dataclass(frozen=True, slots=True)
class CompileStatistics:
    """Compilations in the recorded steps. Those steps took ``run_ns``, of which compilation took ``ns``."""

    steps: int
    run_ns: int
    compiled_steps: int
    ns: int
    functions: tuple[CompiledFunction, ...] = ()


def location_of(one: CompiledFunction) -> str:
    """Return the file and line of a function: ``model.py:42``."""
    return f"{shorten_path(one.file)}:{one.line}" if one.file else "an unknown place"


def summarize_compilations(counted: CompilationProbe, steps: int, run_ns: int) -> CompileStatistics:
    """Return the statistics of the compilations that were counted in these recorded steps."""
    recompiled = [one for one in counted.functions.values() if one.count or one.gave_up]
    recompiled.sort(key=lambda one: (-one.count, one.file, one.line))
    functions = tuple(replace(one, function=one.function or "a function") for one in recompiled[:8])
    return CompileStatistics(steps, run_ns, counted.steps, counted.ns, functions)
