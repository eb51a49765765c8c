"""CUDA (and ROCm) events."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .base import Place
from .events import TorchEvents


class CudaEvents(TorchEvents):
    """Timed events on the current stream of a device.

    torch's public ``Event.record()`` builds a ``Stream`` object each time (about 2 µs); the streams are few, so
    they are kept and found by what the C layer says is current.
    """

    device_type = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self._device = torch._C._cuda_getDevice
        self._current = torch._C._cuda_getCurrentStream
        self._capturing = torch.cuda.is_current_stream_capturing

    def here(self, device: int | None = None) -> Place | None:
        if self._capturing():
            return None
        current = self._device()
        if device is None:
            device = current
        elif device != current and self._captures(device):
            return None
        place = (device, self._current(device)[0])
        if place not in self._streams:
            self._streams[place] = torch.cuda.current_stream(device)
        return place

    def _captures(self, device: int) -> bool:
        """Tell whether the current stream of a device that is not current is being captured."""
        with torch.cuda.device(device):
            return self._capturing()

    def index_of(self, tensor: Tensor) -> int | None:
        return tensor.get_device() if tensor.is_cuda else None

    def new(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
