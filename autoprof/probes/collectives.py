"""Spans of the communication that the training thread waits for: collectives, ``Work.wait``, the end of DDP's backward.

A collective that Python calls is seen as a call; on a device's clock its span lasts as long as the stream waits.
Collectives launched by C++ are no calls: those of DDP's reducer run during the backward pass, and ``backward`` returns
after the last of them. The time from the last autograd node to that return is the span ``Comm/DDP``; it includes other
callbacks of the pass, so it is an upper bound. FSDP waits by events between streams, which no span shows.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..base.frame import Phase
from ..base.process.replace import Attribute, CallProbe, InCompiler, Replacement, place_of
from ..capture.hooks.backward import BackwardPasses
from ..capture.marks.codes import ENTER, LEAVE
from ..capture.recorder import Recorder
from ._base import ProbeContext, ProbeFactory
from ._communication import UNKNOWN_MEMBERS, Traffic, WaitOperator, call_bytes, has_ranks, mark_waits, members_label
from ._sharding import ShardedModule, sharding_replacements
from ._spans import SpanListener

COLLECTIVES: Final = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single",
    "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "recv", "recv_object_list", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list",
)  # fmt: skip
ONE_QUEUE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
"""The environment variable of the number of hardware queues. With one, a timed event on a communication stream keeps
computation waiting."""
UNTIMED_STREAM: Final = f"communication on a stream of its own, not timed under {ONE_QUEUE}=1"
_Group: Any = getattr(dist, "ProcessGroup", ())
_NOT_IN_GROUP: Final = getattr(getattr(dist, "GroupMember", None), "NON_GROUP_MEMBER", object())
"""The group as torch gives it to a rank that is not in it: a call there communicates nothing."""


_listeners: list[Any] = []
"""The listeners of all replacements: recorded steps begin and end by one change."""


def _replacements() -> Iterator[Replacement]:
    if dist.is_available():
        for name in COLLECTIVES:
            if hasattr(dist, name):
                yield Replacement(place_of(dist, name), listeners=_listeners)
        yield Replacement(Attribute(torch._C._distributed_c10d.Work, "wait"), listeners=_listeners)


REPLACEMENTS: Final = tuple(_replacements())
WAIT: Final = Replacement(WaitOperator(), mark_waits, in_compiler=InCompiler.PRESENT, listeners=_listeners)
"""The waits for functional collectives; replaced only in a process that communicates."""


class CommListener(SpanListener):
    """Mark the collectives of one session; a wait inside a collective belongs to it.

    A call of some ranks has their numbers in its name: calls of one name on several ranks are then the same call. One
    of FSDP2 has the module.
    """

    def __init__(self, recorder: Recorder, traffic: Traffic, sharded: ShardedModule) -> None:
        super().__init__(recorder, -1)
        self._traffic = traffic
        self._sharded = sharded
        self._codes: dict[str, int] = {}
        self._members: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        """The words for the ranks of each group."""
        self.has_one_queue = os.environ.get(ONE_QUEUE) == "1"
        """Whether the device has one hardware queue for all streams."""
        self._forward_stream: Any = None
        """The stream of the model's last forward, where there is one queue for all streams."""

    def find_stream(self) -> None:
        """Remember the stream of a training forward, which now begins."""
        if self._recorder.on_device:
            self._forward_stream = self._recorder.clock.place(None)

    def code_of(self, function: Callable[..., Any], args: tuple[Any, ...]) -> int:
        recorder = self._recorder
        if (
            self._forward_stream is not None
            and recorder.on_device
            and recorder.clock.place(None) != self._forward_stream
        ):
            if function.__name__ != "wait":  # also inside a collective
                recorder.count_untimed(UNTIMED_STREAM)
            return -1
        name = function.__name__
        for one in args:
            if one is _NOT_IN_GROUP:
                return -1
            if issubclass(type(one), _Group):  # ``isinstance`` asks a tensor for its class, which is slow
                name += self._label(one)
        name += self._sharded.label
        code = self._codes.get(name)
        if code is None and len(self._codes) >= 256:
            name = f"{function.__name__}{UNKNOWN_MEMBERS}"
            code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = recorder.label(f"Comm/{name}", None, Phase.COMM)
        self._traffic.add(code, call_bytes(args))
        return code

    def _label(self, group: Any) -> str:
        label = self._members.get(group)
        if label is None:
            label = self._members[group] = members_label(group)
        return label


class ReducerWait:
    """Mark the wait for DDP's reducer at the end of a backward pass."""

    def __init__(self, recorder: Recorder, model: torch.nn.Module, passes: BackwardPasses, traffic: Traffic) -> None:
        self._recorder = recorder
        self._traffic = traffic
        self._sizes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """The bytes of the gradients of each DDP module, before a communication hook makes them smaller."""
        self._passes = passes
        self._codes: dict[str, int] = {}
        self._code = -1
        self._ddp: weakref.ref[Any] | None = None
        self._open = False
        inside = next((one for one in model.modules() if isinstance(one, DistributedDataParallel)), None)
        if inside is not None:
            self._follow(inside)

    def find_wrapper(self) -> None:
        """Remember the DDP module whose forward is running: the model may have been wrapped after set-up."""
        active = getattr(DistributedDataParallel, "_active_ddp_module", None)
        if active is not None and (self._ddp is None or self._ddp() is not active):
            self._follow(active)

    def _follow(self, ddp: Any) -> None:
        name = f"Comm/DDP{members_label(getattr(ddp, 'process_group', None))}"
        code = self._codes.get(name)
        if code is None:  # two models may train in turn: each name has one label
            code = self._codes[name] = self._recorder.label(name, None, Phase.COMM)
        if self._ddp is None:
            self._passes.add_end_observer(self)
        self._code, self._ddp = code, weakref.ref(ddp)
        if ddp not in self._sizes:  # two models may train in turn
            trained = (one for one in ddp.parameters() if one.requires_grad)
            self._sizes[ddp] = sum(one.numel() * one.element_size() for one in trained)

    def begin(self) -> None:
        """Mark that all nodes of a backward pass have run: now it waits for the reducer."""
        ddp = None if self._ddp is None else self._ddp()
        recorder = self._recorder
        # The reducer is armed by a forward outside of ``no_sync``, whatever is around the backward.
        if ddp is None or recorder.suspended or not getattr(ddp, "require_forward_param_sync", False):
            return
        try:  # the thread of a device calls this; the wait is that of the thread which has called ``backward``
            recorder.append(self._code | ENTER, recorder.read(), recorder.thread)
            self._open = True
            self._traffic.add(self._code, self._sizes.get(ddp, 0))
        except Exception:
            recorder.handle_failure("marks")

    def end(self) -> None:
        if self._open:
            self._open = False
            self._recorder.mark(self._code | LEAVE)


class CollectiveProbe(CallProbe):
    """Mark the communication of one session, and count its bytes."""

    def __init__(self, context: ProbeContext) -> None:
        self.traffic = Traffic()
        sharded = ShardedModule()
        listener = CommListener(context.recorder, self.traffic, sharded)
        wait = ReducerWait(context.recorder, context.model, context.module_hooks.passes, self.traffic)
        context.training_forward_calls.append(wait.find_wrapper)
        if listener.has_one_queue:
            context.training_forward_calls.append(listener.find_stream)
        calls = (*REPLACEMENTS, *([WAIT] if has_ranks() else []))
        super().__init__([*((one, listener) for one in calls), *((one, sharded) for one in sharding_replacements())])


PROBE = ProbeFactory(CollectiveProbe)
