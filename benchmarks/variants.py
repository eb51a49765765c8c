"""What is attached to a model while steps run: nothing, autoprof in each state, or what people use instead."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn

import autoprof

from .engine import deliver, throw_marks_away
from .workloads import Workload, with_phases

BOTH: Final = ("forward", "recompute", "backward")
Read = Callable[[], Any]


class Discard(io.StringIO):
    """A stream that is no terminal and keeps nothing."""

    def write(self, text: str, /) -> int:
        """Take the text and forget it."""
        return len(text)


class Variant:
    """One way to run a workload; this one attaches nothing. ``end_step`` is timed, ``open`` and ``close`` are not."""

    name = "bare"
    label = "bare"
    settling: ClassVar[int] = 100
    """Steps before a block at most."""

    def open(self, workload: Workload) -> None:
        """Attach whatever the variant attaches."""

    def end_step(self) -> None:
        """Do the variant's work at a step's end."""

    def flush(self) -> None:
        """Do the work that the variant has put off."""

    def close(self) -> None:
        """Take everything off again; called whatever happened, also in the middle of ``open``."""


class NeverOpened(Variant):
    """autoprof is imported and nothing else: equal to bare, so it shows the noise."""

    name = "never_opened"
    label = "autoprof, imported, never opened"


class Session(Variant):
    """A whole session with these changes to the workload's configuration."""

    settling = 900
    """About a second: a session has then made its first passes, in which it counts FLOPs once and prints its first
    line."""

    def __init__(self, name: str, label: str, **changes: Any) -> None:
        self.name, self.label, self._changes = name, f"autoprof, {label}", changes
        self.session: Any = None

    def open(self, workload: Workload) -> None:
        """Instrument the model."""
        config = with_phases(workload.config, BOTH, **self._changes)
        self.session = autoprof.instrument(workload.model, config, optimizer=workload.optimizer)

    def end_step(self) -> None:
        """End the session's step: resolution, frame, aggregation and sinks are part of it."""
        self.session.step()

    def flush(self) -> None:
        """Resolve and write the steps that wait: the session takes several at once."""
        deliver(self.session)

    def close(self) -> None:
        """Close the session."""
        if self.session is not None:
            self.session.close()
        self.session = None


class Recording(Session):
    """The marks alone: real probes on a real recorder, thrown away at the step's end."""

    def end_step(self) -> None:
        """Take the marks and forget them."""
        throw_marks_away(self.session)

    def flush(self) -> None:
        """Do nothing: no step waits."""


class Paused(Session):
    """A session whose steps are all inside ``session.pause()``: no probe records, and no step is open."""

    def open(self, workload: Workload) -> None:
        """Instrument the model and enter the pause."""
        super().open(workload)
        self._pause = contextlib.ExitStack()
        self._pause.enter_context(self.session.pause())

    def end_step(self) -> None:
        """Do nothing: no step is open."""

    def close(self) -> None:
        """Leave the pause and close the session."""
        if self.session is not None:
            self._pause.close()
        super().close()


class InFolder(Variant):
    """A session with ``config``, all default sinks into a folder of its own."""

    name = "session"
    label = "autoprof"
    settling = 900

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = dict(config)
        self._folder: str | None = None
        self.session: Any = None

    def open(self, workload: Workload) -> None:
        """Instrument the model."""
        self._folder = tempfile.mkdtemp(prefix="autoprof-bench-")
        config = {**self._config, "output": self._folder}
        self.session = autoprof.instrument(workload.model, config, optimizer=workload.optimizer)

    def close(self) -> None:
        """Close the session and remove its folder."""
        if self.session is not None:
            self.session.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.session = self._folder = None


class Hooks(Variant):
    """Base of those that register hooks."""

    def __init__(self) -> None:
        self.handles: list[Any] = []

    def hook(self, module: nn.Module, enter: Any, leave: Any) -> None:
        """Register a forward pre-hook and a forward hook that runs after errors too."""
        self.handles.append(module.register_forward_pre_hook(enter))
        self.handles.append(module.register_forward_hook(leave, always_call=True))

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


class Floor(Hooks):
    """Hooks that only read the clock and append the reading, and a prehook on the nodes of inputs and outputs."""

    name = "floor"
    label = "hand-written hooks and node prehooks (the floor)"

    def __init__(self, read: Read = perf_counter_ns) -> None:
        super().__init__()
        self.read = read
        self.marks: list[Any] = []

    def open(self, workload: Workload) -> None:
        """Hook the workload's modules."""
        append, read = self.marks.append, self.read

        def mark(_grads: Any) -> None:
            append(read())

        def watch(value: Any) -> None:
            node = value.grad_fn
            if node is not None:
                node.register_prehook(mark)

        def enter(_module: nn.Module, args: Any) -> None:
            append(read())
            for value in args:
                if isinstance(value, Tensor):
                    watch(value)

        def leave(_module: nn.Module, _args: Any, output: Any) -> None:
            append(read())
            if isinstance(output, Tensor):
                watch(output)

        for module in workload.modules:
            self.handles.append(module.register_forward_pre_hook(enter))
            self.handles.append(module.register_forward_hook(leave))

    def end_step(self) -> None:
        """Throw the marks away."""
        self.marks.clear()


class FullBackwardHook(Floor):
    """``register_full_backward_hook`` beside the two forward hooks."""

    name = "full_backward_hook"
    label = "`register_full_backward_hook` and forward hooks"

    def open(self, workload: Workload) -> None:
        """Hook the workload's modules."""
        append, read = self.marks.append, self.read

        def mark(_module: nn.Module, *_: Any) -> None:
            append(read())

        for module in workload.modules:
            self.hook(module, mark, mark)
            self.handles.append(module.register_full_backward_hook(mark))


class RecordFunction(Hooks):
    """``torch.profiler.record_function`` around each module, with no profiler attached."""

    name = "record_function"
    label = "`record_function` around each module, forward alone"

    def open(self, workload: Workload) -> None:
        """Enter in a pre-hook, leave in a hook."""
        running: list[Any] = []

        def leave(_module: nn.Module, _args: Any, _output: Any) -> None:
            running.pop().__exit__(None, None, None)

        for target in workload.targets:

            def enter(_module: nn.Module, _args: Any, name: str = target.name) -> None:
                running.append(torch.profiler.record_function(name).__enter__())  # type: ignore[no-untyped-call]

            self.hook(target.module, enter, leave)


class Timers(Hooks):
    """A dictionary of ``time.time`` differences; on a GPU each reading waits for the device first."""

    name = "timers"

    def __init__(self, synchronize: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._synchronize = synchronize
        self.label = "`time.time()` pairs" + ("" if synchronize is None else " that synchronise") + ", forward alone"

    def open(self, workload: Workload) -> None:
        """Hook the workload's modules."""
        synchronize = self._synchronize
        began: dict[str, float] = {}
        spent: dict[str, float] = {}

        def read() -> float:
            if synchronize is not None:
                synchronize()
            return time.time()

        for target in workload.targets:

            def enter(_module: nn.Module, _args: Any, name: str = target.fqn) -> None:
                began[name] = read()

            def leave(_module: nn.Module, _args: Any, _output: Any, name: str = target.fqn) -> None:
                spent[name] = spent.get(name, 0.0) + read() - began.pop(name)

            self.hook(target.module, enter, leave)


class TorchProfiler(Variant):
    """``torch.profiler.profile`` recording all steps, without the cost of the trace at the end."""

    name = "torch_profiler"
    label = "`torch.profiler`, always recording"
    settling = 10
    """It keeps all events until it stops."""

    def __init__(self) -> None:
        self._profiler: Any = None

    def open(self, workload: Workload) -> None:
        """Start the profiler."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if workload.asynchronous and torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities)
        with _quiet():
            self._profiler.start()

    def end_step(self) -> None:
        """End a step of the profiler."""
        self._profiler.step()

    def close(self) -> None:
        """Stop the profiler."""
        if self._profiler is not None:
            with _quiet():
                self._profiler.stop()
        self._profiler = None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discard the lines that Kineto's C++ writes to standard error at each start and stop."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def variants(
    folder: str, synchronize: Callable[[], object] | None = None, read: Read = perf_counter_ns
) -> list[Variant]:
    """Return all variants in the order of the table; ``folder`` is that of the session with sinks."""
    return [
        NeverOpened(),
        Paused("paused", "in a pause", sinks={}),
        Session("idle", "a step that is not recorded", sinks={}, sample={"every": 1_000_000_000}),
        Recording("recording", "marks alone", sinks={}),
        Session("resolved", "every step recorded (`budget: null`), with resolution and statistics", sinks={}),
        Session("sinks", "the same with all default sinks", output=folder),
        Floor(read),
        Timers(synchronize),
        RecordFunction(),
        TorchProfiler(),
        FullBackwardHook(read),
    ]
