"""Communication that the training thread waits for: collectives it calls, ``Work.wait``, and the end of DDP's backward.

What the host waits in is seen as a call; on a device's clock a span is as long as the stream was held up. Collectives
that C++ launches are not calls: those of DDP's reducer run beside the backward pass, and what is left of them when its
last node has run is waited for before ``backward`` returns. That rest is the span ``Comm/DDP``; other callbacks of
the pass are in it, so it is an upper bound. FSDP waits by events between streams, which no span shows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import get_ident
from typing import Any, Final

import torch
import torch.distributed as dist

from ...frame import Phase
from ..marks import ENTER, LEAVE
from ..recorder import Recorder
from .handle import Handle
from .patch import Attribute, Patch, PatchProbe, holder_of

COLLECTIVES: Final = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list",
    "gather", "gather_object", "recv", "recv_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "scatter_object_list", "send", "send_object_list",
)  # fmt: skip


def _patches() -> Iterator[Patch]:
    if dist.is_available():
        for name in COLLECTIVES:
            if hasattr(dist, name):
                yield Patch(holder_of(dist, name))
        with suppress(AttributeError):
            yield Patch(Attribute(torch._C._distributed_c10d.Work, "wait"))


PATCHES: Final = tuple(_patches())


class CommListener:
    """Mark one session's collectives; a wait inside a collective is part of it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._codes: dict[str, int] = {}
        self._inside = self._serial = -1

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        recorder = self._recorder
        if self._serial == recorder.serial or get_ident() != recorder.thread or torch.compiler.is_dynamo_compiling():
            return False
        name = function.__name__
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = recorder.label(f"Comm/{name}", None, Phase.COMM)
        self._inside, self._serial = code, recorder.serial  # what a Ctrl-C leaves says nothing of later steps
        recorder.mark(code | ENTER)
        return True

    def leave(self) -> None:
        if self._serial == self._recorder.serial:
            self._recorder.mark(self._inside | LEAVE)
        self._serial = -1


class Reducer:
    """Know whether the end of a backward pass waits for DDP, and mark it."""

    def __init__(self, recorder: Recorder, model: torch.nn.Module) -> None:
        self._recorder = recorder
        self._code = recorder.label("Comm/DDP", None, Phase.COMM)
        self._ddp: weakref.ref[Any] | None = None
        self._open = False
        self._kind: Any = None
        if dist.is_available():
            from torch.nn.parallel import DistributedDataParallel

            self._kind = DistributedDataParallel
            inside = next((one for one in model.modules() if isinstance(one, DistributedDataParallel)), None)
            self._ddp = None if inside is None else weakref.ref(inside)

    def forward(self) -> None:
        """Take word of a training forward of the model: inside DDP's own, if the model was wrapped later."""
        active = None if self._kind is None else getattr(self._kind, "_active_ddp_module", None)
        if active is not None and (self._ddp is None or self._ddp() is not active):
            self._ddp = weakref.ref(active)

    def begin(self) -> None:
        """Mark that all nodes of a backward pass have run: from here on it waits for the reducer."""
        ddp = None if self._ddp is None else self._ddp()
        if ddp is not None and getattr(ddp, "require_backward_grad_sync", False):
            self._open = True
            self._recorder.mark(self._code | ENTER)

    def end(self) -> None:
        """Mark that the backward pass returns."""
        if self._open:
            self._open = False
            self._recorder.mark(self._code | LEAVE)


def probe_collectives(recorder: Recorder, handle: Handle) -> PatchProbe:
    """Time the training thread's collectives and waits."""
    listener = CommListener(recorder)
    return PatchProbe([(patch, listener) for patch in PATCHES], handle)
