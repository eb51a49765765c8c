"""Exclude the functions that write checkpoints on the training thread: saving belongs to no training step.

A function that the program has imported by its name is seen where it calls a function of its own module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any, Final

from ..base.process.replace import Attribute, CallProbe, Replacement
from ..capture.recorder import Recorder
from ._base import ProbeContext, ProbeFactory, StepEvents

PLACES: Final = {
    "torch.save": ("torch", "save"),
    "torch.distributed.checkpoint": ("torch.distributed.checkpoint.state_dict_saver", "_save_state_dict"),
    "save_pretrained": ("transformers.modeling_utils", "PreTrainedModel.save_pretrained"),
    "safetensors": ("safetensors.torch", "serialize_file"),
    "numpy.save": ("numpy", "save"),
    "numpy.savez": ("numpy", "savez"),
    "numpy.savez_compressed": ("numpy", "savez_compressed"),
    "pickle.dump": ("pickle", "dump"),
    "json.dump": ("json", "dump"),
}
"""The module and the attribute of each function, by the name under which its time is excluded."""
_made: dict[str, Replacement] = {}


class SavingListener:
    """Exclude each call from the step in which it happens."""

    def __init__(self, name: str, recorder: Recorder, events: StepEvents) -> None:
        self._name = name
        self._recorder = recorder
        self._events = events
        self._open: list[AbstractContextManager[None]] = []

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        if get_ident() != self._recorder.thread:
            return False
        try:
            excluded = self._events.excluding(self._name)
            excluded.__enter__()
        except Exception:
            self._recorder.handle_failure(self._name)
            return False
        self._open.append(excluded)
        return True

    def leave(self) -> None:
        try:
            self._open.pop().__exit__(None, None, None)
        except Exception:
            self._recorder.handle_failure(self._name)


def _replacement(name: str) -> Replacement | None:
    """Return the replacement of a function; None where its module is not imported or lacks it."""
    module, path = PLACES[name]
    *owners, attribute = path.split(".")
    owner: Any = sys.modules.get(module)
    for one in owners:
        owner = getattr(owner, one, None)
    if name not in _made and hasattr(owner, attribute):
        _made[name] = Replacement(Attribute(owner, attribute))
    return _made.get(name)


def _make(context: ProbeContext) -> CallProbe:
    assert context.events is not None
    found = {name: one for name in PLACES if (one := _replacement(name)) is not None}
    return CallProbe([(one, SavingListener(name, context.recorder, context.events)) for name, one in found.items()])


PROBE = ProbeFactory(_make, reports_events=True)
