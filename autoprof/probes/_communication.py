"""Record each communication of ``torch.distributed``: kind, group, bytes, phase, begin and end.

All of them pass torch's dispatcher as operators of the namespace ``c10d``, called by Python code, functional
collectives, FSDP, pipelines, and the C++ of DDP's reducer. A kernel registered at a key where these operators have none
passes its arguments on to the next kernel and records the call. It changes no tensor and no hook of anybody. A
communication hook of DDP would: DDP divides gradients by other arithmetic when it has one.

A communication on the host ends when a later communication, a wait or the end of backward or of the step finds it done.
One on a device has a begin alone: only an event on the communication stream could time it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import perf_counter_ns, thread_time_ns
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .._process.replace import Listener
from .._ranks import UNKNOWN_MEMBERS
from ..frame import Phase

_BELOW: Final = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)


CALLERS: Final = {
    "torch.distributed.fsdp": "FSDP",
    "torch.distributed._composable.fsdp": "FSDP",
    "torch.distributed.tensor": "DTensor",
    "torch.distributed._tensor": "DTensor",
    "torch.distributed.pipelining": "pipeline",
    "torch.distributed.algorithms.ddp_comm_hooks": "DDP",
    "torch.nn.parallel.distributed": "DDP",
}
"""Modules that communicate on behalf of the program, with the word for them in reports."""

_graph_task = torch._C._current_graph_task_id
_MODULE_CALL: Final[CodeType] = nn.Module._call_impl.__code__


@dataclass(slots=True)
class CommCall:
    """One communication. ``ended_ns`` is 0 until its end is seen; times are those of ``perf_counter_ns``.

    ``group`` is the group as reports call it: the dimension of its mesh, or its name.
    """

    kind: str
    group: str
    ranks: int
    bytes: int
    phase: Phase
    caller: str
    begun_ns: int
    ended_ns: int = 0


class _CommOperator(NamedTuple):
    """The place of the tensors whose bytes count among an operator's arguments, and of the group.

    The bytes are those of nccl-tests: of a gathering all that one rank receives, of a scattering all that is sent.
    """

    name: str
    tensors: int
    group: int
    times_ranks: bool = False


_OPERATORS: Final = {
    "allreduce_": _CommOperator("all_reduce", 0, 1),
    "allreduce_coalesced_": _CommOperator("all_reduce", 0, 1),
    "reduce_": _CommOperator("reduce", 0, 1),
    "broadcast_": _CommOperator("broadcast", 0, 1),
    "allgather_": _CommOperator("all_gather", 0, 2),
    "_allgather_base_": _CommOperator("all_gather", 0, 2),
    "allgather_coalesced_": _CommOperator("all_gather", 0, 2),
    "allgather_into_tensor_coalesced_": _CommOperator("all_gather", 0, 2),
    "reduce_scatter_": _CommOperator("reduce_scatter", 1, 2),
    "_reduce_scatter_base_": _CommOperator("reduce_scatter", 1, 2),
    "reduce_scatter_tensor_coalesced_": _CommOperator("reduce_scatter", 1, 2),
    "gather_": _CommOperator("gather", 1, 2, times_ranks=True),
    "gather_into_tensor_": _CommOperator("gather", 1, 2, times_ranks=True),
    "scatter_": _CommOperator("scatter", 0, 2, times_ranks=True),
    "alltoall_": _CommOperator("all_to_all", 1, 2),
    "alltoall_base_": _CommOperator("all_to_all", 1, 2),
    "send": _CommOperator("send", 0, 1),
    "recv_": _CommOperator("recv", 0, 1),
    "recv_any_source_": _CommOperator("recv", 0, 1),
    "barrier": _CommOperator("barrier", 0, 1),
}
"""The operators by their names in the namespace ``c10d``."""


class CommRecord:
    """The communications of one session's recorded steps."""

    def __init__(self, handle_failure: Callable[[str], None], calls: list[CommCall]) -> None:
        self._handle_failure = handle_failure
        self.calls = calls
        """Those of the open step."""
        self.beyond = 0
        """Communications that were not recorded."""
        self.spent_ns = 0
        """Time that recording took since it was last set to 0."""
        self._pending: list[tuple[CommCall, Any, Callable[[], bool]]] = []
        """Communications whose end was not seen, each with its work and the function that tells whether it is over."""

    def take(self) -> list[CommCall]:
        """Return the communications since the last call, those of one step."""
        self.look_for_ends()
        self._pending.clear()  # a communication without a wait is not kept alive
        calls = self.calls[:]
        del self.calls[: len(calls)]
        return calls

    def add(self, kind: _CommOperator, args: tuple[Any, ...], result: Any, begun_ns: int) -> None:
        """Record a communication that has just been begun."""
        own_ns = thread_time_ns()
        self.look_for_ends()
        try:
            if len(self.calls) >= 8192:
                self.beyond += 1
            else:
                self._add(kind, args, result, begun_ns)
        except Exception:
            self._handle_failure("the record of communication")
        self.spent_ns += thread_time_ns() - own_ns

    def _add(self, kind: _CommOperator, args: tuple[Any, ...], result: Any, begun_ns: int) -> None:
        group = dist.ProcessGroup.unbox(args[kind.group])
        ranks = group.size()
        tensors = list(_tensors(args[kind.tensors]))
        phase, caller = place_of_call(sys._getframe())
        size = 0 if kind.name == "barrier" else sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        size *= ranks if kind.times_ranks else 1
        call = CommCall(kind.name, group_label(group), ranks, size, phase, caller, begun_ns)
        self.calls.append(call)
        if all(tensor.device.type == "cpu" for tensor in tensors):
            work = torch._C._distributed_c10d.Work.unbox(result[-1] if isinstance(result, tuple) else result)
            try:
                is_over = work.get_future().done  # it is set before the work's own flag
            except RuntimeError:  # gloo's works of two ranks, and those that consist of others, have no future
                is_over = work.is_completed
            self._pending.append((call, work, is_over))

    def look_for_ends(self, waited: Sequence[Any] = ()) -> None:
        """Take the present time as the end of each communication that is over; ``waited`` are the works of some.

        Never raises: it is called in the training's own waits.
        """
        try:
            for entry in self._pending[:64]:
                call, work, is_over = entry
                if any(work is one for one in waited) or is_over():
                    call.ended_ns = perf_counter_ns()
                    self._pending.remove(entry)
        except Exception:  # a work of another backend; another thread was faster
            self._handle_failure("the record of communication")


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for one in value:
            yield from _tensors(one)


def group_label(group: Any) -> str:
    """Return the words for a group: the dimension of a ``DeviceMesh`` that it belongs to, or else its name."""
    described = str(getattr(group, "group_desc", "") or "")
    if described.startswith("mesh_"):
        return described.removeprefix("mesh_")
    if described and described != "undefined":
        return "default" if described == "default_pg" else described
    return f"group {group.group_name}"


def members_label(group: Any) -> str:
    """Return the words for the ranks of a group, the same on each of them; nothing for a group of all ranks."""
    try:
        ranks = sorted(dist.get_process_group_ranks(group))
        return "" if len(ranks) == dist.get_world_size() else f" (ranks {_phrase_members(ranks)})"
    except Exception:  # a group that torch.distributed did not make
        return UNKNOWN_MEMBERS


def _phrase_members(ranks: list[int]) -> str:
    """Return different texts for different ranks: a range, a list, or a list cut to its beginning with a checksum."""
    # Ranks of a group that are listed one by one.
    max_listed = 4
    if len(ranks) > 1 and all(after - before == 1 for before, after in pairwise(ranks)):
        return f"{ranks[0]}-{ranks[-1]}"
    if len(ranks) <= max_listed:
        return ", ".join(map(str, ranks))
    first = ", ".join(map(str, ranks[:max_listed]))
    return f"{first}, … {len(ranks)} in all, {crc32(repr(ranks).encode()):08x}"


def place_of_call(frame: FrameType | None) -> tuple[Phase, str]:
    """Return the phase in which a communication is begun, and the word for the part of torch that begins it.

    ``frame`` is ours, above that of the call: the backward thread of a device has no Python code below it.
    """
    phase = Phase.OTHER if _graph_task() == -1 else Phase.BACKWARD
    caller, by_distributed = "", False
    for _ in range(96):
        if frame is None or (caller and phase is not Phase.OTHER):
            break
        module = frame.f_globals.get("__name__", "")
        if not caller and module.startswith("torch."):
            caller = next((word for name, word in CALLERS.items() if module.startswith(name)), "")
            by_distributed = by_distributed or module.startswith("torch.distributed.")
        if phase is Phase.OTHER:
            if frame.f_code is _MODULE_CALL:
                phase = Phase.FORWARD
            elif module == "torch.optim.optimizer":
                phase = Phase.OPTIMIZER
        frame = frame.f_back
    if not caller and not by_distributed and phase is Phase.BACKWARD:
        caller = "DDP"  # begun in C++, by the reducer
    return phase, caller


class RecordingListener(Listener, Protocol):
    """A listener of the waits of functional collectives: C++ waits there, where no ``Work.wait`` is called."""

    record: CommRecord


listeners: Final[list[RecordingListener]] = []
"""Those whose records take communications now."""


def _kernel(kind: _CommOperator, operator: Any) -> Callable[..., Any]:
    passes_on = operator.redispatch

    def communicate(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if not listeners:
            return passes_on(keys & _BELOW, *args, **kwargs)
        begun_ns = perf_counter_ns()
        result = passes_on(keys & _BELOW, *args, **kwargs)
        for listener in listeners[:]:
            listener.record.add(kind, args, result, begun_ns)
        return result

    return communicate


def _wait_kernel(operator: Any) -> Callable[..., Any]:
    passes_on = operator.redispatch

    def wait_tensor(keys: Any, *args: Any, **kwargs: Any) -> Any:
        entered = [listener for listener in listeners[:] if listener.enter(wait_tensor, args)]
        try:
            return passes_on(keys & _BELOW, *args, **kwargs)
        finally:
            for listener in reversed(entered):
                listener.leave()

    return wait_tensor


def has_ranks() -> bool:
    """Return whether this process communicates with other ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class CommKernels:
    """The kernels of all sessions of the process: registered while any of them records."""

    def __init__(self) -> None:
        self._libraries: list[Any] = []

    @property
    def registered(self) -> bool:
        """Whether calls pass through the kernels."""
        return bool(self._libraries)

    def listen(self, listener: RecordingListener) -> None:
        """Have a listener take each communication from now on."""
        if not self._libraries:
            self._register()
        if listener not in listeners:
            listeners.append(listener)

    def ignore(self, listener: RecordingListener) -> None:
        """Have it take no more; the kernels stay, idle."""
        if listener in listeners:
            listeners.remove(listener)

    def unregister(self) -> None:
        """Give torch its own operators back once there are no listeners."""
        if not listeners:
            libraries, self._libraries = self._libraries, []
            for library in libraries:
                library._destroy()

    def _register(self) -> None:
        # The key of the kernels. It is below those of autograd and of Python's modes, and no guard of torch excludes
        # it: DTensor communicates inside the dispatch of another operator, where autograd's keys are off.
        key = "BackendSelect"
        library: Any = torch.library.Library
        makers: dict[tuple[str, str], Any] = {
            ("c10d", name): partial(_kernel, kind) for name, kind in _OPERATORS.items()
        }
        makers["_c10d_functional", "wait_tensor"] = _wait_kernel
        made: dict[str, Any] = {}
        try:
            for (space, name), make in makers.items():
                operator = getattr(getattr(torch.ops, space), name, None)
                if operator is not None:
                    if space not in made:
                        made[space] = library(space, "IMPL")
                    made[space].impl(name, make(operator.default), key, with_keyset=True)
        finally:
            self._libraries = list(made.values())


KERNELS: Final = CommKernels()
