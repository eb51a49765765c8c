"""Accelerators other than CUDA, through torch's generic ``torch.Event``."""

from __future__ import annotations

from typing import Any

import torch

from .base import Place
from .events import TorchEvents


class AcceleratorEvents(TorchEvents):
    """Timed ``torch.Event`` of the accelerator that torch names current (xpu, hpu, …).

    Raises whatever torch raises where the device has no timed events; ``choose_clock`` tries one before relying on it.
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
