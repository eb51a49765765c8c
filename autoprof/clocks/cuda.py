"""CUDA (and ROCm) events."""

from __future__ import annotations

from typing import Any

import torch

from .base import Place
from .events import TorchEvents


class CudaEvents(TorchEvents):
    """Timed events on the current stream of the current device.

    torch's public ``Event.record()`` builds a ``Stream`` object each time (about 2 µs); the streams are few, so
    they are kept and found by what the C layer says is current.
    """

    device_type = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self._device = torch._C._cuda_getDevice
        self._current = torch._C._cuda_getCurrentStream
        self._capturing = torch.cuda.is_current_stream_capturing

    def here(self) -> Place | None:
        if self._capturing():
            return None
        device = self._device()
        place = (device, self._current(device)[0])
        if place not in self._streams:
            self._streams[place] = torch.cuda.current_stream(device)
        return place

    def new(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
