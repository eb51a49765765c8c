"""Accelerators other than CUDA (xpu, hpu, mps, …), through torch's generic ``torch.accelerator``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, Final

import torch
from torch import Tensor

from ._clock import Clock, HostClock, Place
from ._device import Device, device_of
from ._device_clock import DeviceClock, TorchEvents
from ._memory import AllocatorMemory, HostMemory, Memory


class AcceleratorEvents(TorchEvents):
    """Timed ``torch.Event`` of torch's current accelerator.

    Raises the backend's own exception where the device has no timed events; ``Accelerator.clock`` tries one first.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.device_type = device_type

    def here(self, device: int | None = None) -> Place | None:
        stream = torch.accelerator.current_stream(device)
        place = (stream.device_index, stream.stream_id)
        self._streams.setdefault(place, stream)
        return place

    def new(self) -> Any:
        return torch.Event(device=self.device_type, enable_timing=True)


class Accelerator(Device):
    """Any type that no other part claims: device times where torch has timed events for it, else host times."""

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
            index = torch.accelerator.current_device_index() if place.index is None else place.index
            memory = AllocatorMemory(index, torch._C._accelerator_getDeviceStats, _capacity)
            memory.level_bytes()
        except Exception:  # a torch without these counters, or a backend whose allocator has none
            return HostMemory()
        return memory

    def waiting_calls(self) -> Iterable[tuple[Any, str]]:
        module = _module()
        if module is None:
            return
        yield torch.accelerator, "synchronize"
        for holder in (module, getattr(module, "Event", None), getattr(module, "Stream", None)):
            if isinstance(holder, ModuleType) or "synchronize" in vars(holder or object):
                yield holder, "synchronize"

    def in_use(self) -> bool:
        module = _module()
        return module is not None and bool(getattr(module, "is_initialized", lambda: True)())

    def synchronize(self, place: torch.device) -> None:
        torch.accelerator.synchronize(place)

    def random_states(self) -> dict[str, Tensor]:
        module = _module()
        if module is None or not self.in_use() or not hasattr(module, "get_rng_state"):
            return {}
        return {f"{_type()}:{index}": module.get_rng_state(index) for index in range(torch.accelerator.device_count())}

    def set_random_states(self, states: Mapping[str, Tensor]) -> None:
        for place, state in states.items():
            torch.get_device_module(place).set_rng_state(state, torch.device(place).index)


def _type() -> str | None:
    """Return the type of torch's current accelerator where no other part has it; None before torch 2.6."""
    accelerator = getattr(torch, "accelerator", None)
    place = None if accelerator is None else accelerator.current_accelerator()
    return place.type if place is not None and device_of(place) is DEVICE else None


def _module() -> Any:
    """Return torch's module of that accelerator (``torch.xpu``); None where there is none."""
    kind = _type()
    return None if kind is None else getattr(torch, kind, None)


def _capacity(index: int) -> int:
    return int(torch.accelerator.get_memory_info(index)[1])


def _try_events(source: AcceleratorEvents) -> None:
    """Time nothing with two events, and wait for them; raise where that fails."""
    start, end = source.new(), source.new()
    place = source.here()
    assert place is not None
    source.record(start, place)
    source.record(end, place)
    source.synchronize(end)
    source.elapsed_ns(start, end)


DEVICE: Final = Accelerator()
