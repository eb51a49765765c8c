"""Alternatives to autoprof, used as their users do."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any, ClassVar

import torch
from torch import nn

from .floors import ForwardFloor
from .variant import Family, Variant
from .workloads import Workload


class _Hooks(Variant):
    """Base of those that hang hooks on modules."""

    family: ClassVar[Family] = "others"

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class RecordFunction(_Hooks):
    """``torch.profiler.record_function`` around each module, with no profiler attached."""

    name = "record_function"
    label = "record_function per module"

    def open(self, workload: Workload) -> None:
        """Enter in a pre hook, leave in a hook."""
        for target in workload.targets:
            enter, leave = self._pair(target.name)
            self._handles.append(target.module.register_forward_pre_hook(enter))
            self._handles.append(target.module.register_forward_hook(leave, always_call=True))

    def _pair(self, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        running: list[Any] = []

        def enter(_module: nn.Module, _args: Any) -> None:
            running.append(torch.profiler.record_function(name).__enter__())  # type: ignore[no-untyped-call]

        def leave(_module: nn.Module, _args: Any, _output: Any) -> None:
            running.pop().__exit__(None, None, None)

        return enter, leave


class TorchProfiler(Variant):
    """``torch.profiler.profile`` recording all steps, without the cost of the trace at the end."""

    family: ClassVar[Family] = "others"
    name = "torch_profiler"
    label = "torch.profiler, always recording"

    def __init__(self) -> None:
        self._profiler: Any = None

    def open(self, workload: Workload) -> None:
        """Start the profiler."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if workload.asynchronous and torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities)
        with quiet():
            self._profiler.start()

    def end_step(self) -> None:
        """End a step of the profiler."""
        self._profiler.step()

    def close(self) -> None:
        """Stop the profiler."""
        if self._profiler is not None:
            with quiet():
                self._profiler.stop()
        self._profiler = None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Redirect the lines that Kineto's C++ writes to standard error at each start and stop."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class FullBackwardHook(ForwardFloor):
    """``register_full_backward_pre_hook`` and ``register_full_backward_hook``, beside the two forward hooks."""

    family: ClassVar[Family] = "others"
    name = "full_backward_hook"
    label = "register_full_backward_hook + forward hooks"

    def open(self, workload: Workload) -> None:
        """Hook the workload's modules."""
        super().open(workload)
        append, read = self._marks.append, self.read

        def after(_module: nn.Module, _grad_input: Any, _grad_output: Any) -> None:
            append(read())

        for module in workload.modules:
            self._handles.append(module.register_full_backward_hook(after))


class SynchronisingTimers(_Hooks):
    """A dictionary of ``time.time`` differences; on a GPU each reading waits for the device first."""

    name = "sync_timers"

    def __init__(self, synchronize: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._synchronize = synchronize
        self.label = "timers: time.time() pairs" if synchronize is None else "timers that synchronise"

    def open(self, workload: Workload) -> None:
        """Hook the workload's modules."""
        synchronize = self._synchronize
        began: dict[str, float] = {}
        spent: dict[str, float] = {}
        counts: dict[str, int] = {}

        def read() -> float:
            if synchronize is not None:
                synchronize()
            return time.time()

        for target in workload.targets:
            name = target.fqn

            def enter(_module: nn.Module, _args: Any, name: str = name) -> None:
                began[name] = read()

            def leave(_module: nn.Module, _args: Any, _output: Any, name: str = name) -> None:
                if name in began:
                    spent[name] = spent.get(name, 0.0) + read() - began.pop(name)
                    counts[name] = counts.get(name, 0) + 1

            self._handles.append(target.module.register_forward_pre_hook(enter))
            self._handles.append(target.module.register_forward_hook(leave, always_call=True))


def variants(
    synchronize: Callable[[], object] | None = None, read: Callable[[], Any] = perf_counter_ns
) -> list[Variant]:
    """Return the alternatives as variants."""
    return [SynchronisingTimers(synchronize), RecordFunction(), TorchProfiler(), FullBackwardHook(read)]
