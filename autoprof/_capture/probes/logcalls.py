"""Time what logs inside a step: ``print``, the handlers of ``logging``, the writers of TensorBoard and wandb.

Each of them takes microseconds at least; to note where it was called and how long it took adds about one. The wrappers
stay from a session's first step to its end and do nothing where no step is recorded. ``print`` is seen only as long as
torch has compiled nothing: dynamo guards the object that the name stands for.
"""

from __future__ import annotations

import builtins
import logging
import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from threading import get_ident
from typing import Any, Final

from ...devices import Clock
from ..recorder import Recorder
from .calls import CallTable, site_of
from .compiling import has_compiled, skip_in_compiler
from .installed import Installation, replace

WRITERS: Final = (
    ("torch.utils.tensorboard.writer", "SummaryWriter"),
    ("tensorboardX.writer", "SummaryWriter"),
    ("wandb.sdk.wandb_run", "Run"),
)
"""Classes whose methods log; those that are imported when a session begins are seen."""
METHODS: Final = (
    "add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_figure", "add_text", "add_video",
    "add_audio", "add_embedding", "add_pr_curve", "log",
)  # fmt: skip
_caller = sys._getframe


class LogProbe:
    """Have one session's table take these calls while it records. Sessions share the wrappers."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self.table = CallTable(clock)
        self.thread = recorder.thread
        self.inside = False
        """Whether such a call is under way: what it calls is part of it."""
        self._recorder = recorder
        self._clock = clock
        recorder.on_change(self._renew)

    def _renew(self) -> None:
        self.thread = self._recorder.thread
        if self._recorder.clock is not self._clock:
            self._clock = self._recorder.clock
            self.table.drop()
            self.table.use_clock(self._clock)

    def attach(self) -> None:
        """Listen."""
        wrappers.listen(self)

    def detach(self) -> None:
        """Listen no more; the wrappers stay until ``remove``."""
        self.inside = False
        wrappers.ignore(self)

    def failed(self) -> None:
        """Count a failure of ours."""
        self._recorder.handle_failure("calls that log")

    def remove(self) -> None:
        """Put everything back once no session needs it."""
        self.inside = False
        wrappers.leave(self)


def _begin() -> list[tuple[LogProbe, int]]:
    """Return who listens to a call that begins here and is in no other, each with the time."""
    thread, told = get_ident(), []
    for probe in _listening:
        if thread == probe.thread and not probe.inside:
            probe.inside = True
            told.append((probe, probe.table.now()))
    return told


def _end(told: list[tuple[LogProbe, int]], name: str, frame: Any) -> None:
    site = site_of(frame, name)
    for probe, start_ns in told:
        probe.inside = False
        try:
            if site is not None:
                probe.table.add(site, start_ns, probe.table.now())
        except Exception:
            probe.failed()


def _places() -> Iterator[tuple[Any, str, str]]:
    if not has_compiled():  # what a graph guards must be what it was when the graph was made
        yield builtins, "print", "print"
    yield logging.Logger, "callHandlers", "logging"
    for module, kind in WRITERS:
        owner = getattr(sys.modules.get(module), kind, None)
        for name in METHODS if owner is not None else ():
            if name in vars(owner):
                yield owner, name, f"{kind}.{name}"


def _put() -> Iterator[Callable[[], None]]:
    for owner, name, called in _places():
        inner = vars(owner)[name]
        yield replace(owner, name, inner, _wrapper(inner, called))


wrappers: Final = Installation[LogProbe](_put)
_listening = wrappers.listening


@cache  # dynamo compiles anew where a global is another object than it was
def _wrapper(inner: Any, called: str) -> Any:
    @wraps(inner)
    def logging_call(*args: Any, **kwargs: Any) -> Any:
        told = _begin() if _listening else None
        if not told:
            return inner(*args, **kwargs)
        try:
            return inner(*args, **kwargs)
        finally:
            _end(told, called, _caller(1))

    skip_in_compiler(logging_call)
    return logging_call


for _code in (_begin, _end):
    skip_in_compiler(_code)
