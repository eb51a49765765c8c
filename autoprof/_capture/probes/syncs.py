"""Time the calls that make the host wait for the device: ``.item()``, ``.cpu()``, ``float(t)``, printing a tensor, …

Nothing of ours is on the stack while such a call runs. A method of ``torch.Tensor`` is replaced by a descriptor: what
looks it up on the class gets the very method, what looks it up on a tensor of the device gets a ``partial`` of the
bound one, made for that one call; when the call is over the ``partial`` dies, and that is the end of the wait. So
tracebacks and warnings are the user's own. The descriptors stay from a session's first step on a device to its end and
do nothing where no step is recorded: CPython gives up caching the attributes of a type that changes too often.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial, wraps
from threading import get_ident
from typing import Any, Final

import torch

from ...devices import Clock, DeviceClock, TorchEvents
from ..recorder import Recorder
from .calls import CallTable, site_of
from .compiling import has_compiled, skip_in_compiler
from .installed import Installation, replace

METHODS: Final = (
    "item", "tolist", "cpu", "numpy", "nonzero", "is_nonzero", "masked_select", "__bool__", "__float__", "__int__",
    "__index__", "__complex__", "__repr__",
)  # fmt: skip
"""Methods of a tensor that return what only the device knows."""
_task = torch._C._current_graph_task_id
_caller = sys._getframe


class _Watched:
    """A method in the place of which this stands: the same on the class, timed on a tensor of the device."""

    __slots__ = ("_method", "_name", "_of_tensor")

    def __init__(self, method: Any, name: str, of_tensor: bool) -> None:
        self._method = method
        self._name = name
        self._of_tensor = of_tensor

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self._method if owner is None else self._method.__get__(None, owner)
        bound = self._method.__get__(instance, owner)
        if not _listening:
            return bound
        return _watch(bound, instance if self._of_tensor else None, self._name, _caller(1))


def _watch(bound: Any, tensor: Any, name: str, frame: Any) -> Any:
    """Return what to call instead of ``bound``, so that whoever listens learns when the call is over."""
    made = site = None
    try:
        thread = get_ident()
        for probe in _listening:
            table = probe.table
            if (thread != probe.thread and _task() == -1) or not (tensor is None or probe.index_of(tensor) is not None):
                continue
            if site is None:
                site = site_of(frame, name)
                if site is None:
                    break
                made = partial(bound)
            table.watch(made, site)
    except Exception:
        for probe in _listening:
            probe.failed()
    return bound if made is None else made


class SyncProbe:
    """Have one session's table take these calls while it records on a device. Sessions share the descriptors."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self.table = CallTable(clock)
        self.thread = recorder.thread
        self.index_of: Callable[[Any], int | None] = _nowhere
        self.on_device = False
        self._recorder = recorder
        self._recording = False
        recorder.on_change(self._renew)
        self._follow(clock)

    def _renew(self) -> None:
        recorder = self._recorder
        self.thread = recorder.thread
        if recorder.clock is not self._clock:
            self._follow(recorder.clock)

    def _follow(self, clock: Clock) -> None:
        """Read this clock; only a device's has anything to wait for."""
        self._clock = clock
        self.table.drop()
        self.table.use_clock(clock)
        self.on_device = isinstance(clock, DeviceClock)
        if isinstance(clock, DeviceClock):
            self.index_of = clock.index_of
        self._listen()

    def attach(self) -> None:
        """Listen."""
        self._recording = True
        self._listen()

    def detach(self) -> None:
        """Listen no more; the descriptors stay until ``remove``."""
        self._recording = False
        self._listen()

    def _listen(self) -> None:
        if self._recording and self.on_device:
            descriptors.listen(self)
        else:
            descriptors.ignore(self)

    def failed(self) -> None:
        """Count a failure of ours."""
        self._recorder.handle_failure("calls that wait for the device")

    def remove(self) -> None:
        """Put everything back once no session needs it."""
        self._recording = False
        descriptors.leave(self)


def _nowhere(_tensor: Any) -> None:
    return None


def _places() -> Iterator[tuple[Any, str, bool]]:
    for name in METHODS:
        yield torch.Tensor, name, True
    for kind in (torch.cuda.Event, torch.cuda.Stream):
        yield kind, "synchronize", False


def _put() -> Iterator[Callable[[], None]]:
    for owner, name, of_tensor in _places():
        method = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
        yield replace(owner, name, method, _Watched(method, name, of_tensor))
    if not has_compiled():  # what a graph guards must be what it was when the graph was made
        inner = torch.cuda.synchronize
        yield replace(torch.cuda, "synchronize", inner, _wrapper(inner, "synchronize"))


descriptors: Final = Installation[SyncProbe](_put)
_listening = descriptors.listening


@cache  # dynamo compiles anew where a global is another object than it was
def _wrapper(inner: Any, name: str) -> Any:
    @wraps(inner)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        if not _listening:
            return inner(*args, **kwargs)
        return _watch(inner, None, name, _caller(1))(*args, **kwargs)

    skip_in_compiler(waiting)
    return waiting


for _code in (
    DeviceClock.index_of,
    TorchEvents.index_of,
    _Watched.__get__,
    _watch,
    site_of,
    CallTable.watch,
    CallTable.add,
    CallTable._settle,
):
    skip_in_compiler(_code)
