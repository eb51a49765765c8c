"""Any accelerator (xpu, hpu, mps, …), through what torch has for all of them; ``cuda.py`` adds what only CUDA has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic, sleep
from types import MethodDescriptorType, ModuleType
from typing import Any, Final

import torch
from torch import Tensor

from ._clock import Clock, HostClock, Place
from ._device import Device, device_of
from ._device_clock import POLL_S, DeviceClock, EventSource
from ._memory import AllocatorMemory, HostMemory, Memory


class AcceleratorEvents(EventSource):
    """Timed ``torch.Event`` of torch's current accelerator.

    Raises the backend's own exception where the device has no timed events; ``Accelerator.clock`` tries one first.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.device_type = device_type
        self._module: Any = getattr(torch, device_type, None)
        self._capturing: Callable[[], bool] = getattr(self._module, "is_current_stream_capturing", _never)

    def here(self, device: int | None = None) -> Place | None:
        stream = torch.accelerator.current_stream(device)
        if self._capturing is not _never:  # torch can capture graphs on this device
            if self._capturing():
                return None
            if stream.device_index != torch.accelerator.current_device_index() and self._captures(stream.device_index):
                return None
        place = (stream.device_index, stream.stream_id)
        self._streams.setdefault(place, stream)
        return place

    def _captures(self, device: int) -> bool:
        """Return whether the current stream of another device than the current one is being captured."""
        with self._module.device(device):
            return self._capturing()

    def new(self) -> Any:
        return torch.Event(device=self.device_type, enable_timing=True)


def _never() -> bool:
    return False


class Accelerator(Device):
    """Any type that no other part claims: device times where torch has timed events for it, else host times."""

    @property
    def copy_methods(self) -> tuple[str, ...]:
        kind = self._type()
        method = None if kind is None else getattr(Tensor, kind, None)
        return (str(kind),) if isinstance(method, MethodDescriptorType) else ()  # one in Python calls Tensor.to

    def clock(self, place: torch.device) -> tuple[Clock, str | None]:
        try:
            source = AcceleratorEvents(place.type)
            _try_events(source)
        except Exception as error:  # a backend without events raises an exception of its own
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            return HostClock(), f"no timed events on {place.type!r} ({reason}); host times only"
        return DeviceClock(source, device=place.index), None

    def memory(self, place: torch.device) -> Memory:
        try:
            module = self._module()
            index = _current_device(module) if place.index is None else place.index
            stats = getattr(module, "memory_stats_as_nested_dict", None) or torch._C._accelerator_getDeviceStats
            memory = AllocatorMemory(index, stats, self._capacity)
            memory.level_bytes()
        except Exception:  # a torch without these counters, or a backend whose allocator has none
            return HostMemory()
        return memory

    def _capacity(self, index: int) -> int:
        properties = getattr(self._module(), "get_device_properties", None)
        if properties is not None:
            return int(properties(index).total_memory)
        return int(torch.accelerator.get_memory_info(index)[1])

    def name(self, place: torch.device) -> str:
        named = getattr(self._module(), "get_device_name", str)
        return str(named(place))

    def waiting_calls(self) -> Iterable[tuple[Any, str]]:
        module = self._module()
        if module is None:
            return
        if hasattr(torch, "accelerator"):
            yield torch.accelerator, "synchronize"
        for holder in (module, getattr(module, "Event", None), getattr(module, "Stream", None)):
            if isinstance(holder, ModuleType) or "synchronize" in vars(holder or object):
                yield holder, "synchronize"

    def in_use(self) -> bool:
        module = self._module()
        return module is not None and bool(getattr(module, "is_initialized", lambda: True)())

    def capturing(self) -> bool:
        return self.in_use() and bool(getattr(self._module(), "is_current_stream_capturing", _never)())

    def random_states(self) -> dict[str, Tensor]:
        module = self._module()
        if not self.in_use() or not hasattr(module, "get_rng_state"):
            return {}
        return {f"{self._type()}:{index}": module.get_rng_state(index) for index in range(module.device_count())}

    def set_random_states(self, states: Mapping[str, Tensor]) -> None:
        for place, state in states.items():
            self._module().set_rng_state(state, torch.device(place).index)

    def _type(self) -> str | None:
        """Return the type of this process's accelerator where no other part has it; None before torch 2.6."""
        accelerator = getattr(torch, "accelerator", None)
        place = None if accelerator is None else accelerator.current_accelerator()
        return place.type if place is not None and device_of(place) is self else None

    def _module(self) -> Any:
        """Return torch's module of that accelerator (``torch.xpu``); None where there is none."""
        kind = self._type()
        return None if kind is None else getattr(torch, kind, None)


def _current_device(module: Any) -> int:
    """Return the index of the current device; not every module of torch (``torch.mps``) says it."""
    named = getattr(module, "current_device", None)
    return int(torch.accelerator.current_device_index() if named is None else named())


def _try_events(source: AcceleratorEvents) -> None:
    """Time nothing with two events; raise where that fails.

    The device's other streams may have work for hours: these events are on a new stream, which has none. Where the
    device has not passed them soon, it has timed events all the same.
    """
    start, end, stream = source.new(), source.new(), torch.Stream(device=source.device_type)
    start.record(stream)
    end.record(stream)
    # The longest time in which a device passes two events on a stream without work, unless it is busy.
    until = monotonic() + 0.1
    while not source.query(end):
        if monotonic() > until:
            return
        sleep(POLL_S)
    source.elapsed_ns(start, end)


DEVICE: Final = Accelerator()
