"""CUDA and ROCm devices (torch names both ``cuda``): events, the caching allocator, NVML, peaks, waiting calls.

The peaks are by the exact name that ``torch.cuda.get_device_name`` returns, from makers' data sheets, dense: a figure
"with sparsity" is halved. Where a sheet has a figure for accumulation in 16 bit and one in 32 bit, the latter is taken,
because torch accumulates so. A name without a row has no peak: an H100 PCIe does 0.76 of an H100 SXM, and a slice of a
device (MIG) has its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from .._process.replace import Attribute, InCompiler, Replacement
from ..errors import MissingExtra
from ._clock import Clock, Place
from ._device import Device
from ._device_clock import DeviceClock, TorchEvents
from ._memory import AllocatorHistory, AllocatorMemory, Memory
from ._monitor import TelemetryReader
from ._nvml import import_nvml, open_reader
from ._peaks import Arithmetic, Peak, Tf32Flags, find_peak


class CudaEvents(TorchEvents):
    """Timed events on the current stream of a device.

    torch's public ``Event.record()`` builds a ``Stream`` object each time (about 2 µs). The streams are few, so they
    are kept, and found by the current stream's number in the C layer.
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
        """Return whether the current stream of another device than the current one is being captured."""
        with torch.cuda.device(device):
            return self._capturing()

    def index_of(self, tensor: Tensor) -> int | None:
        return tensor.get_device() if tensor.is_cuda else None

    def new(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _capacity(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


class CudaHistory:
    """The recording of torch's native CUDA allocator."""

    _observed: ClassVar[bool] = False
    """Whether this process has its out-of-memory observer: one for all sessions, because torch cannot remove it."""

    def __init__(self) -> None:
        self._user_changed = False
        self._record: Callable[..., None] | None = None
        place = Attribute(torch.cuda.memory, "_record_memory_history")
        self._replacement = Replacement(place, in_compiler=InCompiler.PRESENT, listeners=[self])

    def available(self) -> bool:
        return torch.cuda.is_available()

    def recording(self) -> bool:
        return bool(torch._C._cuda_isHistoryEnabled())

    def start(self, *, entries: int, stacks: str) -> None:
        memory: Any = torch.cuda.memory
        self._record = memory._record_memory_history
        self._record(max_entries=entries, stacks=stacks)
        self._user_changed = False
        self._replacement.hold(self)

    def stop(self) -> None:
        record, self._record = self._record, None
        if record is None:
            return
        self._replacement.release(self)
        if not self._user_changed:  # else the user has started or stopped recording meanwhile
            record(None)

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Called before the user starts or stops recording."""
        self._user_changed = True
        return False

    def leave(self) -> None:
        """Never called."""

    def snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = torch.cuda.memory._snapshot()
        return found

    def on_oom(self, call: Callable[[], None]) -> None:
        if CudaHistory._observed:
            return
        CudaHistory._observed = True
        torch._C._cuda_attach_out_of_memory_observer(lambda *_facts: call())  # type: ignore[attr-defined]


def _peak(
    form_factor: str, source: str, fp32: float, tf32: float | None, bf16: float | None, fp16: float,
    fp8: float | None = None, note: str = "",
) -> Peak:  # fmt: skip
    given: dict[Arithmetic, float | None] = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": fp16, "fp8": fp8}
    return Peak(form_factor, {kind: value for kind, value in given.items() if value is not None}, source, note)


_NVIDIA: Final = "https://www.nvidia.com"
_H100: Final = "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_HALVED: Final = "the sheet's tensor figures are with sparsity: halved"

_H100_SXM = _peak("SXM5", _H100, 67, 989 / 2, 1979 / 2, 1979 / 2, 3958 / 2, _HALVED)
_H100_PCIE = _peak("PCIe", _H100, 51, 756 / 2, 1513 / 2, 1513 / 2, 3026 / 2, _HALVED)
_H100_NVL = _peak("PCIe NVL", f"{_NVIDIA}/en-us/data-center/h100/", 60, 835 / 2, 1671 / 2, 1671 / 2, 3341 / 2, _HALVED)
_H200 = _peak("SXM5", f"{_NVIDIA}/en-us/data-center/h200/", 67, 989 / 2, 1979 / 2, 1979 / 2, 3958 / 2, _HALVED)
_B200 = _peak(
    "SXM6", "https://resources.nvidia.com/en-us-blackwell-architecture", 75, 2200 / 2, 4500 / 2, 4500 / 2, 9000 / 2,
    "the column HGX B200, per GPU; tensor figures with sparsity: halved",
)  # fmt: skip
_A100_SHEET: Final = (
    f"{_NVIDIA}/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_A100_SXM = _peak("SXM4", _A100_SHEET, 19.5, 156, 312, 312)
_A100_PCIE = _peak("PCIe", _A100_SHEET, 19.5, 156, 312, 312)
_V100_SHEET: Final = (
    "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_V100_SXM = _peak("SXM2", _V100_SHEET, 15.7, None, None, 125)
_V100_PCIE = _peak("PCIe", _V100_SHEET, 14, None, None, 112)
_V100S_PCIE = _peak("PCIe", _V100_SHEET, 16.4, None, None, 130)
_ADA: Final = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_GA102: Final = f"{_NVIDIA}/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf"
_AMD: Final = "https://www.amd.com/en/products/accelerators/instinct"
_ACCUMULATE: Final = "16-bit and FP8 with FP32 accumulation"

PEAKS: Final[Mapping[str, Peak]] = {
    "NVIDIA B200": _B200,
    "NVIDIA H200": _H200,
    "NVIDIA H100 80GB HBM3": _H100_SXM,
    "NVIDIA H100 PCIe": _H100_PCIE,
    "NVIDIA H100 NVL": _H100_NVL,
    "NVIDIA A100-SXM4-40GB": _A100_SXM,
    "NVIDIA A100-SXM4-80GB": _A100_SXM,
    "NVIDIA A100-PCIE-40GB": _A100_PCIE,
    "NVIDIA A100 80GB PCIe": _A100_PCIE,
    "A100-SXM4-40GB": _A100_SXM,  # drivers before R470 omit the maker's name
    "A100-PCIE-40GB": _A100_PCIE,
    "A100-SXM-80GB": _A100_SXM,
    "NVIDIA A40": _peak(
        "PCIe", f"{_NVIDIA}/en-us/data-center/a40/",
        37.4, 74.8, 149.7, 149.7,
    ),
    "NVIDIA A10": _peak(
        "PCIe", f"{_NVIDIA}/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf", 31.2, 62.5, 125, 125
    ),
    "NVIDIA A10G": _peak(
        "PCIe", "https://d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf",
        35, 35, 70, 70,
    ),
    "NVIDIA L40": _peak(
        "PCIe", f"{_NVIDIA}/en-us/data-center/l40/",
        90.5, 90.5, 181.05, 181.05, 362,
    ),
    "NVIDIA L40S": _peak(
        "PCIe", f"{_NVIDIA}/en-us/data-center/l40s/", 91.6, 183, 362.05, 362.05, 733
    ),
    "Tesla V100-SXM2-16GB": _V100_SXM,
    "Tesla V100-SXM2-32GB": _V100_SXM,
    "Tesla V100-PCIE-16GB": _V100_PCIE,
    "Tesla V100-PCIE-32GB": _V100_PCIE,
    "Tesla V100S-PCIE-32GB": _V100S_PCIE,
    "Tesla T4": _peak(
        "PCIe", f"{_NVIDIA}/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf",
        8.1, None, None, 65,
    ),
    "NVIDIA GeForce RTX 3090": _peak("PCIe", _GA102, 35.6, 35.6, 71, 71, note=_ACCUMULATE),
    "NVIDIA GeForce RTX 4090": _peak("PCIe", _ADA, 82.6, 82.6, 165.2, 165.2, 330.3, _ACCUMULATE),
    "AMD Instinct MI250X": _peak(
        "OAM", f"{_AMD}/mi200/mi250x.html", 95.7 / 2, None, 383 / 2, 383 / 2,
        note="half of the module: torch sees each of its two dies as a device; FP32 of the matrix cores",
    ),
    "AMD Instinct MI250": _peak(
        "OAM", f"{_AMD}/mi200/mi250.html", 90.5 / 2, None, 362.1 / 2, 362.1 / 2,
        note="half of the module: torch sees each of its two dies as a device; FP32 of the matrix cores",
    ),
}  # fmt: skip
"""Peaks by exact name."""


class Cuda(Device):
    """A CUDA or ROCm device: its clock, memory, telemetry and peaks."""

    types = ("cuda",)
    copy_methods = ("cuda",)

    def clock(self, place: torch.device) -> tuple[Clock, str | None]:
        return DeviceClock(CudaEvents(), device=place.index), None

    def memory(self, place: torch.device) -> Memory:
        return AllocatorMemory(_index(place), torch.cuda.memory_stats_as_nested_dict, _capacity)

    def allocator_history(self) -> AllocatorHistory | None:
        return CudaHistory()

    def name(self, place: torch.device) -> str:
        return torch.cuda.get_device_name(place)

    def peak(self, place: torch.device) -> tuple[Peak | None, str | None]:
        return find_peak(self.name(place), PEAKS)

    def tf32(self) -> Tf32Flags:
        return tf32_flags(torch.backends, rocm=torch.version.hip is not None)

    def benchmarks_convolutions(self) -> bool | None:
        return cudnn_benchmark(torch.backends.cudnn)

    def telemetry(self, place: torch.device) -> tuple[TelemetryReader | None, str | None]:
        if torch.version.hip is not None:
            return None, "NVML supports only devices of NVIDIA"
        try:
            nvml = import_nvml()
        except MissingExtra as error:
            return None, str(error)
        index = _index(place)
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        return open_reader(nvml, index, None if uuid is None else str(uuid))

    def waiting_calls(self) -> Iterable[tuple[Any, str]]:
        return (torch.cuda.Event, "synchronize"), (torch.cuda.Stream, "synchronize"), (torch.cuda, "synchronize")

    def in_use(self) -> bool:
        used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return used

    def capturing(self) -> bool:
        return torch.cuda.is_available() and self.in_use() and torch.cuda.is_current_stream_capturing()

    def synchronize(self, place: torch.device) -> None:
        torch.cuda.synchronize(place)

    def random_states(self) -> dict[str, Tensor]:
        states = torch.cuda.get_rng_state_all() if self.in_use() else ()
        return {f"cuda:{index}": state for index, state in enumerate(states)}

    def set_random_states(self, states: Mapping[str, Tensor]) -> None:
        torch.cuda.set_rng_state_all(list(states.values()))


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


def cudnn_benchmark(settings: Any) -> bool | None:
    """Read ``torch.backends.cudnn``; None where cuDNN is off, or deterministic, which excludes benchmarking."""
    return bool(settings.benchmark) if settings.enabled and not settings.deterministic else None


def _index(place: torch.device) -> int:
    return torch.cuda.current_device() if place.index is None else place.index


DEVICE: Final = Cuda()
