"""Count the compilations of ``torch.compile`` during training: the function, the reason to recompile, the duration.

Nothing is switched on for it: dynamo calls back when it begins and ends, and keeps metrics of its last compilations
(``torch._dynamo.utils.get_compilation_metrics``). They are read at the end of a step in which it compiled.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

from .._capture.compiler import around_compiler
from .._capture.handle import Handle
from ._base import ProbeContext, ProbeFactory

MAX_FUNCTIONS: Final = 64
"""Functions with counts of their own; further ones are not listed."""
MAX_REASON: Final = 300
"""Characters kept of a reason."""
_UTILS: Final = "torch._dynamo.utils"


class Compilation(NamedTuple):
    """One compilation by dynamo's metrics: ``attempt`` is 0 for the first of a function, 1 for the next, …"""

    key: str
    function: str
    file: str
    line: int
    attempt: int
    reason: str
    gave_up: bool


class CompiledFunction:
    """The recompilations of one function."""

    __slots__ = ("count", "file", "function", "gave_up", "line", "reason")

    def __init__(self) -> None:
        self.function, self.file, self.line = "", "", 0
        self.count = 0
        self.reason = ""
        self.gave_up = False

    def add(self, one: Compilation, recorded: bool) -> None:
        """Count one compilation; one in a warm-up step only gives the function's name."""
        if one.function:  # where dynamo gives up, its metrics have no name
            self.function, self.file, self.line = one.function, one.file, one.line
        if recorded and one.attempt:
            self.gave_up = self.gave_up or one.gave_up
            self.count += not one.gave_up
            self.reason = one.reason or self.reason


class CompilationProbe:
    """The compilations of one session's recorded steps. For the training thread only. A ``Probe``."""

    def __init__(self) -> None:
        self.functions: dict[str, CompiledFunction] = {}
        self.ns = 0
        self.steps = 0
        """Recorded steps in which torch compiled."""
        self.recorded_steps = 0
        self.recorded_ns = 0
        self._begun_ns: int | None = None
        self._open_ns = 0
        self._open_count = 0
        self._last: Any = None
        self._handle = Handle()
        self._attached = False

    def attach(self) -> None:
        """Count from now on."""
        if not self._attached:
            self._attached = True
            self._handle.add(around_compiler(self._begin, self._end).remove)

    def remove(self) -> None:
        """Count no more."""
        self._handle.remove()
        self._attached = False

    detach = remove

    def _begin(self) -> None:
        if self._begun_ns is None:
            if not self._open_count:
                metrics = _metrics()
                self._last = metrics[-1] if metrics else None
            self._begun_ns = perf_counter_ns()

    def _end(self) -> None:
        if self._begun_ns is not None:
            self._open_ns += perf_counter_ns() - self._begun_ns
            self._open_count += 1
            self._begun_ns = None

    @property
    def has_compiled(self) -> bool:
        """Whether torch has compiled in the open step."""
        return self._open_count > 0

    def close_step(self, length_ns: int, recorded: bool) -> None:
        """Called at the end of a step; of an unrecorded one, only the functions' names are kept."""
        if recorded:
            self.close_steps_without(1, length_ns)
        if not self._open_count:
            return
        for one in self._new():
            kept = self.functions.get(one.key)
            if kept is None and len(self.functions) < MAX_FUNCTIONS:
                kept = self.functions[one.key] = CompiledFunction()
            if kept is not None:
                kept.add(one, recorded)
        if recorded:
            self.ns += self._open_ns
            self.steps += 1
        self._open_count = self._open_ns = 0

    def close_steps_without(self, count: int, length_ns: int) -> None:
        """Count so many recorded steps of this length in total, without what torch compiled in them."""
        self.recorded_steps += count
        self.recorded_ns += length_ns

    def _new(self) -> list[Compilation]:
        new = []
        for metrics in reversed(_metrics()):
            if metrics is self._last:
                break
            with suppress(Exception):  # another version of torch may have other fields
                new.append(_read(metrics))
        return new[::-1]


def _metrics() -> list[Any]:
    with suppress(Exception):
        metrics: list[Any] = sys.modules[_UTILS].get_compilation_metrics()
        return metrics
    return []


def _read(metrics: Any) -> Compilation:
    frame, _, number = str(metrics.compile_id).rpartition("/")
    attempt = number.partition("_")[0]  # 0/1_2: frame 0, attempt 1, restarted twice
    reason = str(getattr(metrics, "recompile_reason", None) or "")
    return Compilation(
        key=frame,
        function=metrics.co_name or "",
        file=metrics.co_filename or "",
        line=metrics.co_firstlineno or 0,
        attempt=int(attempt),
        reason=" ".join(reason.partition(": ")[2].split() or reason.split())[:MAX_REASON],
        gave_up="limit" in str(metrics.fail_reason or "")[:80] and not metrics.co_name,
    )


def _make(context: ProbeContext) -> CompilationProbe:
    return CompilationProbe()


PROBE = ProbeFactory(_make, always=True)
