"""What torch's events have in common, whatever device they are on."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .base import Place


class TorchEvents:
    """Record, ask and compare events of torch; where they are is for the kinds of device to say."""

    def __init__(self) -> None:
        self._streams: dict[Place, Any] = {}

    device_type: str

    def index_of(self, tensor: Tensor) -> int | None:
        device = tensor.device
        return device.index if device.type == self.device_type else None

    def record(self, event: Any, place: Place) -> None:
        event.record(self._streams[place])

    def query(self, event: Any) -> bool:
        return bool(event.query())

    def elapsed_ns(self, start: Any, end: Any) -> int:
        elapsed_ms: float = start.elapsed_time(end)
        return round(elapsed_ms * 1e6)

    def synchronize(self, event: Any) -> None:
        event.synchronize()
