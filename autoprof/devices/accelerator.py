"""Accelerators other than CUDA (xpu, hpu, mps, …), through torch's generic ``torch.accelerator``."""

from __future__ import annotations

from typing import Any, Final

import torch

from ._clock import Clock, HostClock, Place
from ._device import Device
from ._device_clock import DeviceClock, TorchEvents


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
