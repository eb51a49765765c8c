"""Time the calls that make the host wait for the device: ``.item()``, ``.cpu()``, ``float(t)``, printing a tensor, …

No frame of ours is on the stack while such a call runs, so tracebacks and warnings are the user's own. A method of
``torch.Tensor`` is replaced by a descriptor. A look-up on the class gets the method itself; a look-up on a tensor of
the device gets a ``partial`` of the bound method, made for that one call. When the call is over the ``partial`` is
freed, and that is the end of the wait. The descriptors stay from a session's first recorded step on a device to its
end, and do nothing in unsampled steps: CPython stops caching the attributes of a type that changes too often.

They are written in C, for most calls wait for nothing: AdamW reads ``step.item()`` on the host twice a parameter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial, wraps
from itertools import cycle
from threading import get_ident
from typing import Any, Final

import torch

from ..base.allowance import SAMPLED_CALLS, Allowance
from ..base.process.replace import Attribute, InCompiler, Make, Replacement, never_compile
from ..capture.marks.native import require_extension
from ..capture.recorder import Recorder
from ..devices import DeviceClock, EventSource, ask_devices
from ._base import ProbeFactory
from ._call_table import CallTable, Site, file_owner, site_of
from ._libraries import is_installed

METHODS: Final = (
    "item", "tolist", "cpu", "numpy", "nonzero", "is_nonzero", "masked_select", "__bool__", "__float__", "__int__",
    "__index__", "__complex__", "__repr__",
)  # fmt: skip
"""Methods of a tensor that need a value of the device."""
_UNTIMED: Final = nullcontext()
_turns: Final = cycle(range(SAMPLED_CALLS))
"""Gives 0 to the watched call that is timed."""
_task = torch._C._current_graph_task_id
_caller = sys._getframe


def _watch(bound: Any, tensor: Any, name: str, frame: Any = None) -> Any:
    """Return a function to call in place of ``bound``; when it is freed, the listeners know the end of the call."""
    made = site = None
    try:
        thread = get_ident()
        for probe in listeners:
            if (thread != probe.thread and _task() == -1) or not (tensor is None or probe.index_of(tensor) is not None):
                continue
            with _UNTIMED if next(_turns) else probe.allowance.sampled():
                if site is None:
                    site = site_of(frame or _caller(1), name)
                    if site is None:
                        break
                    made = partial(bound)
                probe.table.watch(made, site)
    except Exception:
        for probe in listeners:
            probe.count_failure()
    return bound if made is None else made


class SyncProbe:
    """Record the calls that wait for a device, once the session reads its clock. A ``Probe``.

    The replacements stay from its first recorded step on a device to its end.
    """

    def __init__(self, recorder: Recorder, allowance: Allowance) -> None:
        self.table = CallTable(recorder)
        self.allowance = allowance
        """Pays for watching calls."""
        self.thread = recorder.thread
        self.index_of: Callable[[Any], int | None] = _on_no_device
        self.is_here: Callable[[Any], Any] = _on_no_device
        """Returns whether a tensor is on a device of the clock's kind."""
        self.applies = False
        """Whether the clock is that of a device."""
        self._recorder = recorder
        self._attached = False
        self._held: tuple[Replacement, ...] = ()
        recorder.on_change(self._update)
        self._update()

    def _update(self) -> None:
        self.thread, clock = self._recorder.thread, self._recorder.clock
        self.applies = isinstance(clock, DeviceClock)
        if isinstance(clock, DeviceClock):
            self.index_of, self.is_here = clock.index_of, clock.is_here
        self._listen()

    def attach(self) -> None:
        self._attached = True
        self._listen()

    def detach(self) -> None:
        self._attached = False
        self._listen()

    def remove(self) -> None:
        self.detach()
        held, self._held = self._held, ()
        for replacement in held:
            replacement.release(self)

    def _listen(self) -> None:
        wanted = self._attached and self.applies
        if wanted and not self._held:
            self._held = replacements()
            for replacement in self._held:
                replacement.hold(self)
        if wanted and self not in listeners:
            listeners.append(self)
        elif not wanted and self in listeners:
            listeners.remove(self)

    def count_failure(self) -> None:
        self._recorder.handle_failure("calls that wait for the device")


def _on_no_device(_tensor: Any) -> None:
    return None


listeners: Final[list[SyncProbe]] = []
"""The probes that record now."""


def _timed_method(name: str, of_tensor: bool) -> Make:
    timed_method = require_extension().TimedMethod

    def make(original: Any, _listeners: list[Any]) -> Any:
        while type(original) is timed_method:  # left there because another package's wrapper was around it
            original = original.__wrapped__
        return timed_method(original, name, of_tensor, listeners, _watch)

    return make


def _timed_function(original: Any, _listeners: list[Any]) -> Any:
    @wraps(original)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        if not listeners:
            return original(*args, **kwargs)
        return _watch(original, None, original.__name__, _caller(1))(*args, **kwargs)

    never_compile(waiting)
    return waiting


@cache
def replacements() -> tuple[Replacement, ...]:
    """Return the replacements of the tensor methods, and of the waiting calls of all kinds of devices."""
    made = [
        Replacement(Attribute(torch.Tensor, name), _timed_method(name, True), listeners=listeners) for name in METHODS
    ]
    calls = ask_devices(lambda device: tuple(device.waiting_calls()))
    for owner, name in dict.fromkeys(call for _, found in calls for call in found):  # several kinds share one
        place = Attribute(owner, name)
        if isinstance(owner, type):
            made.append(Replacement(place, _timed_method(name, False), listeners=listeners))
        else:
            made.append(Replacement(place, _timed_function, in_compiler=InCompiler.RETIRED, listeners=listeners))
    return tuple(made)


for _function in (
    DeviceClock.index_of,
    EventSource.index_of,
    _watch,
    site_of,
    file_owner.__wrapped__,
    is_installed,
    Site.__new__,
    CallTable.watch,
    CallTable.add,
    CallTable._add_watched,
):
    never_compile(_function)


PROBE = ProbeFactory(lambda context: SyncProbe(context.recorder, context.hooks_allowance))
