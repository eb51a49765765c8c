"""The parts of CUDA and ROCm devices (torch names both ``cuda``) that the generic accelerator lacks: docs/gpu.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from ..errors import MissingExtra
from ._clock import Clock, Place
from ._cuda_peaks import PEAKS
from ._device_clock import DeviceClock
from ._monitor import TelemetryReader
from ._nvml import import_nvml, open_reader
from ._peaks import Peak, Tf32Flags, find_peak
from .accelerator import Accelerator, AcceleratorEvents


class CudaEvents(AcceleratorEvents):
    """Timed events on the current stream of a device.

    torch builds a ``Stream`` object each time it names the current stream (about 2 µs). The streams are few, so they
    are kept, and found by the current stream's number in the C layer.
    """

    def __init__(self) -> None:
        super().__init__("cuda")
        self._device = torch._C._cuda_getDevice
        self._current = torch._C._cuda_getCurrentStream

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

    def new(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    @property
    def native(self) -> Mapping[str, Any]:
        return {
            "record": torch._C._CudaEventBase.record,  # without the Python of torch.cuda.Event
            "streams": self._streams,
            "current_device": self._device,
            "current_stream": torch._C._cuda_getCurrentRawStream,
            "is_capturing": torch._C._cuda_isCurrentStreamCapturing,
        }


class Cuda(Accelerator):
    """A CUDA or ROCm device: the generic accelerator with events, telemetry, peaks and flags of its own."""

    types = ("cuda",)

    def clock(self, place: torch.device) -> tuple[Clock, str | None]:
        return DeviceClock(CudaEvents(), device=place.index), None

    def peak(self, place: torch.device) -> tuple[Peak | None, str | None]:
        return find_peak(self.name(place), PEAKS)

    def tf32(self) -> Tf32Flags:
        return tf32_flags(torch.backends, rocm=torch.version.hip is not None)

    def telemetry(self, place: torch.device) -> tuple[TelemetryReader | None, str | None]:
        if torch.version.hip is not None:
            return None, "NVML supports only devices of NVIDIA"
        try:
            nvml = import_nvml()
        except MissingExtra as error:
            return None, str(error)
        index = torch.cuda.current_device() if place.index is None else place.index
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        return open_reader(nvml, None if uuid is None else str(uuid))

    def _type(self) -> str | None:
        return "cuda"


def tf32_flags(backends: Any, rocm: bool = False) -> Tf32Flags:
    """Read ``torch.backends``, whose old and new settings must not be mixed: each is read in the way it was set.

    ``rocm`` is ``torch.version.hip is not None``: convolutions have no TF32 there, whatever the flag is.
    """
    return Tf32Flags(_allowed(backends.cuda.matmul), not rocm and _allowed(backends.cudnn, "conv"))


def _allowed(settings: Any, operator: str | None = None) -> bool:
    try:
        return bool(settings.allow_tf32)
    except RuntimeError:  # it was set as fp32_precision, of the operator or of all
        precise = getattr(settings, operator, settings) if operator else settings
        return str(precise.fp32_precision) == "tf32"


DEVICE: Final = Cuda()
