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
from typing import Any, Final

from .._capture.recorder import Recorder
from .._process.replace import Attribute, InCompiler, Replacement
from ._base import ProbeContext, ProbeFactory
from ._timed_calls import TimedCallProbe, time_calls

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


class LogProbe(TimedCallProbe):
    """Record the calls that log."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, listeners, _find_replacements, "calls that log")


listeners: Final[list[LogProbe]] = []
"""The probes that record now."""
_replacements: dict[tuple[Any, str], Replacement] = {}


def _find_replacements() -> Iterator[Replacement]:
    for owner, name, call in _places():
        if (owner, name) not in _replacements:
            in_compiler = InCompiler.RETIRED if owner is builtins else InCompiler.ABSENT
            place = Attribute(owner, name)
            _replacements[owner, name] = Replacement(
                place, time_calls(call), in_compiler=in_compiler, listeners=listeners
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


def _make(context: ProbeContext) -> LogProbe:
    return LogProbe(context.recorder)


PROBE = ProbeFactory(_make)
