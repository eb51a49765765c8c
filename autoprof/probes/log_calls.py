"""Time the calls that log inside a step: ``print``, the handlers of ``logging``, the writers of TensorBoard and wandb.

Each of them takes microseconds at least; recording its call site and duration adds about one. The replacements stay
from a session's first recorded step to its end, and do nothing in unsampled steps. ``print`` is seen only as long as
torch has compiled nothing: dynamo guards the object behind the name.
"""

from __future__ import annotations

import builtins
import logging
import sys
from collections.abc import Callable, Iterator
from functools import cache
from threading import get_ident
from typing import Any, Final

from ..base.process.replace import Attribute, CallProbe, InCompiler, Replacement, call_listeners, never_compile
from ..capture.recorder import Recorder
from ._base import ProbeFactory
from ._call_table import CallTable, site_of

WRITERS: Final = (
    ("torch.utils.tensorboard.writer", "SummaryWriter"),
    ("tensorboardX.writer", "SummaryWriter"),
    ("wandb.sdk.wandb_run", "Run"),
)
"""Classes whose methods log, by module; only those imported before the session are seen."""
METHODS: Final = (
    "add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_figure", "add_text", "add_video",
    "add_audio", "add_embedding", "add_pr_curve", "log",
)  # fmt: skip


class LogProbe(CallProbe):
    """Record the calls that log."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.table = CallTable(recorder)
        self.open_in = -1
        """The serial of the step of the open call, -1 where none is open: calls inside it belong to it."""
        super().__init__((_replacement(owner, name), _LogListener(self, call)) for owner, name, call in _places())


class _LogListener:
    """Record the calls of one function, by its name."""

    def __init__(self, probe: LogProbe, name: str) -> None:
        self._probe = probe
        self._name = name
        self._start_ns = 0

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        probe = self._probe
        serial = probe.recorder.serial
        if probe.open_in == serial or get_ident() != probe.recorder.thread:
            return False
        probe.open_in = serial
        self._start_ns = probe.table.now()
        return True

    def leave(self) -> None:
        table = self._probe.table
        self._probe.open_in = -1
        try:
            site = site_of(sys._getframe(2), self._name)  # the frame of the replacement is between
            if site is not None:
                table.add(site, self._start_ns, table.now())
        except Exception:
            self._probe.recorder.handle_failure("calls that log")


@cache
def _replacement(owner: Any, name: str) -> Replacement:
    in_compiler = InCompiler.RETIRED if owner is builtins else InCompiler.ABSENT
    return Replacement(Attribute(owner, name), _replace_call, in_compiler=in_compiler)


def _places() -> Iterator[tuple[Any, str, str]]:
    yield builtins, "print", "print"
    yield logging.Logger, "callHandlers", "logging"
    for module, kind in WRITERS:
        owner = getattr(sys.modules.get(module), kind, None)
        for name in METHODS if owner is not None else ():
            if name in vars(owner):
                yield owner, name, f"{kind}.{name}"


def _replace_call(original: Any, listeners: list[Any]) -> Any:
    call = call_listeners(original, listeners)
    never_compile(call)
    return call


PROBE = ProbeFactory(lambda context: LogProbe(context.recorder))
