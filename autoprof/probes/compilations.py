"""Count the compilations of ``torch.compile`` during training: the function, the reason to recompile, the duration.

Nothing is switched on for it: dynamo calls back when it begins and ends, and keeps metrics of its last compilations
(``torch._dynamo.utils.get_compilation_metrics``). They are read at the end of a step in which it compiled.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..capture.compiler import around_compiler
from ..capture.handle import Handle
from ._base import ProbeFactory


@dataclass(slots=True)
class CompiledFunction:
    """A function that was compiled again ``count`` times in recorded steps, for ``modules`` of the model.

    ``gave_up``: torch stopped compiling it.
    """

    function: str = ""
    file: str = ""
    line: int = 0
    count: int = 0
    reason: str = ""
    gave_up: bool = False
    modules: tuple[str, ...] = ()

    def add(self, metrics: Any, recorded: bool, modules: Mapping[str, str]) -> None:
        """Count one compilation by dynamo's metrics; one in a warm-up step only gives the function's name.

        ``modules`` has the module of each compilation by its identifier.
        """
        if metrics.co_name:  # where dynamo gives up, its metrics have no name
            self.function, self.file, self.line = metrics.co_name, metrics.co_filename, metrics.co_firstlineno
        attempt = str(metrics.compile_id).rpartition("/")[2].partition("_")[0]  # 0/1_2: attempt 1, restarted twice
        if not recorded or not int(attempt):
            return
        gave_up = "limit" in str(metrics.fail_reason or "")[:80] and not metrics.co_name
        self.gave_up = self.gave_up or gave_up
        self.count += bool(metrics.co_name)  # a backward, which is compiled when it first runs, has no name
        module = modules.get(str(metrics.compile_id), "")
        if module and module not in self.modules:
            self.modules = (*self.modules, module)
        reason = str(getattr(metrics, "recompile_reason", None) or "")
        earlier, _, text = reason.partition(": ")
        if modules.get(earlier, module) == module:  # blocks share a function: the graph of another one is no reason
            self.reason = " ".join(text.split() or reason.split())[:300] or self.reason


class CompilationProbe:
    """The compilations of one session's recorded steps. For the training thread only. A ``Probe``."""

    def __init__(self, model: nn.Module, now_ns: Callable[[], int]) -> None:
        self._model: Any = weakref.ref(model)
        self._now_ns = now_ns
        self._modules: dict[str, str] = {}
        """The names of the modules that torch compiled, by dynamo's identifiers of the compilations."""
        self.functions: dict[str, CompiledFunction] = {}
        self.ns = 0
        self.steps = 0
        """Recorded steps in which torch compiled."""
        self._begun_ns: int | None = None
        self._open_ns = 0
        self.open_count = 0
        """The compilations in the open step."""
        self._last: Any = None
        self._handle = Handle()

    def attach(self) -> None:
        self._handle.add(around_compiler(self._begin, self._end).remove)

    def remove(self) -> None:
        self._handle.remove()

    detach = remove

    def _begin(self) -> None:
        if self._begun_ns is None:
            if not self.open_count:
                metrics = _metrics()
                self._last = metrics[-1] if metrics else None
            self._begun_ns = self._now_ns()
            with suppress(Exception):  # no module of the model, or another version of torch
                self._note_module()

    def _note_module(self) -> None:
        """Note the module whose method dynamo begins to compile: the first argument of the frame that it was given."""
        at: Any = sys._getframe()
        while at.f_globals["__name__"] != "torch._dynamo.convert_frame" or "frame" not in at.f_locals:
            at = at.f_back  # None in the end, where no frame is compiled, as for a backward
        frame, model = at.f_locals["frame"], self._model()
        module = frame.f_locals[frame.f_code.co_varnames[0]]
        name = next(name for name, one in model.named_modules() if one is module)
        compile_id = str(sys.modules["torch._guards"].CompileContext.current_compile_id())
        self._modules[compile_id] = name or type(module).__name__

    def _end(self) -> None:
        if self._begun_ns is not None:
            self._open_ns += self._now_ns() - self._begun_ns
            self.open_count += 1
            self._begun_ns = None

    def close_step(self, recorded: bool) -> None:
        """Called at the end of a step with compilations; of an unrecorded one, only the functions' names are kept."""
        for metrics in self._new():
            with suppress(Exception):  # another version of torch may have other fields
                frame = str(metrics.compile_id).rpartition("/")[0]
                if frame in self.functions or len(self.functions) < 64:
                    self.functions.setdefault(frame, CompiledFunction()).add(metrics, recorded, self._modules)
        if recorded:
            self.ns += self._open_ns
            self.steps += 1
        self.open_count = self._open_ns = 0

    def _new(self) -> list[Any]:
        """Return the metrics since the first compilation of the step began."""
        metrics = _metrics()
        ends = (at for at in range(len(metrics), 0, -1) if metrics[at - 1] is self._last)
        return metrics[next(ends, 0) :]


def _metrics() -> list[Any]:
    with suppress(Exception):
        metrics: list[Any] = sys.modules["torch._dynamo.utils"].get_compilation_metrics()
        return metrics
    return []


PROBE = ProbeFactory(lambda context: CompilationProbe(context.model, context.recorder.clock.now), always=True)
