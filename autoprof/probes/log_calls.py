"""Time the calls that log inside a step: ``print``, the handlers of ``logging``, the writers of TensorBoard and wandb.

Each of them takes microseconds at least; recording its call site and duration adds about one. The replacements stay
from a session's first recorded step to its end, and do nothing in unsampled steps. ``print`` is seen only as long as
torch has compiled nothing: dynamo guards the object behind the name.
"""

from __future__ import annotations

import builtins
import logging
import sys
from collections.abc import Iterator
from functools import wraps
from threading import get_ident
from typing import Any, Final

from .._capture.recorder import Recorder
from .._process.replace import Attribute, InCompiler, Make, Replacement, never_compile
from ._base import ProbeContext, ProbeFactory
from ._call_table import TableProbe, site_of

WRITERS: Final = (
    ("torch.utils.tensorboard.writer", "SummaryWriter"),
    ("tensorboardX.writer", "SummaryWriter"),
    ("wandb.sdk.wandb_run", "Run"),
)
"""Classes whose methods log, by module; only those imported before a session's first recorded step are seen."""
METHODS: Final = (
    "add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_figure", "add_text", "add_video",
    "add_audio", "add_embedding", "add_pr_curve", "log",
)  # fmt: skip
_caller = sys._getframe


class LogProbe(TableProbe):
    """Record the calls that log."""

    where = "calls that log"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, listeners, _find_replacements)
        self.inside = False
        """Whether such a call is open: calls inside it belong to it."""

    def detach(self) -> None:
        """Record no more; the replacements stay until ``remove``."""
        self.inside = False
        super().detach()


listeners: Final[list[LogProbe]] = []
"""The probes that record now."""
_replacements: dict[tuple[Any, str], Replacement] = {}


def _find_replacements() -> Iterator[Replacement]:
    for owner, name, call in _places():
        if (owner, name) not in _replacements:
            in_compiler = InCompiler.RETIRED if owner is builtins else InCompiler.ABSENT
            place = Attribute(owner, name)
            _replacements[owner, name] = Replacement(
                place, _time_calls(call), in_compiler=in_compiler, listeners=listeners
            )
        yield _replacements[owner, name]


def _places() -> Iterator[tuple[Any, str, str]]:
    yield builtins, "print", "print"
    yield logging.Logger, "callHandlers", "logging"
    for module, kind in WRITERS:
        owner = getattr(sys.modules.get(module), kind, None)
        for name in METHODS if owner is not None else ():
            if name in vars(owner):
                yield owner, name, f"{kind}.{name}"


def _time_calls(name: str) -> Make:
    """Return the maker of a replacement that reports each call under this name."""

    def make(original: Any, _listeners: list[Any]) -> Any:
        @wraps(original)
        def timed_call(*args: Any, **kwargs: Any) -> Any:
            begun = _begin() if listeners else None
            if not begun:
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                _end(begun, name, _caller(1))

        never_compile(timed_call)
        return timed_call

    return make


def _begin() -> list[tuple[LogProbe, int]]:
    """Return the probes that record a call beginning here, outside any other, each with the time."""
    thread, begun = get_ident(), []
    for probe in listeners:
        if thread == probe.thread and not probe.inside:
            probe.inside = True
            begun.append((probe, probe.table.now()))
    return begun


def _end(begun: list[tuple[LogProbe, int]], name: str, frame: Any) -> None:
    site = site_of(frame, name)
    for probe, start_ns in begun:
        probe.inside = False
        try:
            if site is not None:
                probe.table.add(site, start_ns, probe.table.now())
        except Exception:
            probe.count_failure()


for _function in (_begin, _end):
    never_compile(_function)


def _make(context: ProbeContext) -> LogProbe:
    return LogProbe(context.recorder)


PROBE = ProbeFactory(_make)
