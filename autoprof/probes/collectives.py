"""Spans of the communication that the training thread waits for: collectives, ``Work.wait``, the end of DDP's backward.

A collective that Python calls is seen as a call; on a device's clock its span lasts as long as the stream waits.
Collectives launched by C++ are no calls: those of DDP's reducer run during the backward pass, and ``backward`` returns
after the last of them. The time from the last autograd node to that return is the span ``Comm/DDP``; it includes other
callbacks of the pass, so it is an upper bound. FSDP waits by events between streams, which no span shows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import get_ident
from typing import Any, Final

import torch
import torch.distributed as dist

from .._capture.marks import ENTER, LEAVE
from .._capture.recorder import Recorder
from .._process.replace import Attribute, CallProbe, Replacement, place_of
from ..frame import Phase
from ._base import ProbeContext, ProbeFactory

COLLECTIVES: Final = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list",
    "gather", "gather_object", "recv", "recv_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "scatter_object_list", "send", "send_object_list",
)  # fmt: skip


def _replacements() -> Iterator[Replacement]:
    if dist.is_available():
        for name in COLLECTIVES:
            if hasattr(dist, name):
                yield Replacement(place_of(dist, name))
        with suppress(AttributeError):
            yield Replacement(Attribute(torch._C._distributed_c10d.Work, "wait"))


REPLACEMENTS: Final = tuple(_replacements())


class CommListener:
    """Mark the collectives of one session; a wait inside a collective belongs to it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._codes: dict[str, int] = {}
        self._open_code = self._open_in = -1

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        recorder = self._recorder
        if self._open_in == recorder.serial or get_ident() != recorder.thread or torch.compiler.is_dynamo_compiling():
            return False
        name = function.__name__
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = recorder.label(f"Comm/{name}", None, Phase.COMM)
        self._open_code, self._open_in = code, recorder.serial  # after a Ctrl-C, the serial of an old step
        recorder.mark(code | ENTER)
        return True

    def leave(self) -> None:
        if self._open_in == self._recorder.serial:
            self._recorder.mark(self._open_code | LEAVE)
        self._open_in = -1


class ReducerWait:
    """Mark the wait for DDP's reducer at the end of a backward pass."""

    def __init__(self, recorder: Recorder, model: torch.nn.Module) -> None:
        self._recorder = recorder
        self._code = recorder.label("Comm/DDP", None, Phase.COMM)
        self._ddp: weakref.ref[Any] | None = None
        self._open = False
        self._ddp_class: Any = None
        if dist.is_available():
            from torch.nn.parallel import DistributedDataParallel

            self._ddp_class = DistributedDataParallel
            inside = next((one for one in model.modules() if isinstance(one, DistributedDataParallel)), None)
            self._ddp = None if inside is None else weakref.ref(inside)

    def find_wrapper(self) -> None:
        """Remember the DDP module whose forward is running: the model may have been wrapped after set-up."""
        active = None if self._ddp_class is None else getattr(self._ddp_class, "_active_ddp_module", None)
        if active is not None and (self._ddp is None or self._ddp() is not active):
            self._ddp = weakref.ref(active)

    def begin(self) -> None:
        """Mark that all nodes of a backward pass have run: now it waits for the reducer."""
        ddp = None if self._ddp is None else self._ddp()
        if ddp is not None and getattr(ddp, "require_backward_grad_sync", False):
            self._open = True
            self._recorder.mark(self._code | ENTER)

    def end(self) -> None:
        """Mark that the backward pass returns."""
        if self._open:
            self._open = False
            self._recorder.mark(self._code | LEAVE)


def _make(context: ProbeContext) -> CallProbe:
    wait = ReducerWait(context.recorder, context.model)
    context.training_forward_calls.append(wait.find_wrapper)
    context.module_hooks.passes.add_end_observer(wait)
    listener = CommListener(context.recorder)
    return CallProbe([(replacement, listener) for replacement in REPLACEMENTS])


PROBE = ProbeFactory(_make)
