"""Telemetry of NVIDIA devices through NVML: utilisation, memory, power, clocks, temperature, throttling."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from .._names import quoted
from ..errors import import_extra
from ._telemetry import DeviceReading

T = TypeVar("T")

_THROTTLES: Final = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of nvmlDeviceGetCurrentClocksThrottleReasons that mean less than the requested speed (nvml.h); idle does not."""
_SM_CLOCK: Final = 1
_MEMORY_CLOCK: Final = 2
_DIE_SENSOR: Final = 0


class NvmlReader:
    """Read one device. Each value is a call into the driver, some take milliseconds: never call it in a step."""

    def __init__(
        self, nvml: Any, handle: Any, parent: Any, uuid: str, unix_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._whole = parent if parent is not None else handle
        self._uuid = uuid
        self._unix_ns = unix_ns
        self._shared = parent is not None
        self._unsupported: set[str] = set()
        self._name = _text(self._call("nvmlDeviceGetName", handle)) or "?"
        self._limit_mw = self._call("nvmlDeviceGetPowerManagementLimit", self._whole)
        self._clock_max = self._call("nvmlDeviceGetMaxClockInfo", self._whole, _SM_CLOCK)

    def read(self) -> DeviceReading:
        """Return a reading. A value that the device does not support is tried once; other driver errors leave None."""
        use = None if self._shared else self._call("nvmlDeviceGetUtilizationRates", self._handle)
        memory = self._call("nvmlDeviceGetMemoryInfo", self._handle)
        reasons = self._call("nvmlDeviceGetCurrentClocksThrottleReasons", self._whole)
        return DeviceReading(
            unix_ns=self._unix_ns(),
            uuid=self._uuid,
            name=self._name,
            utilization_fraction=None if use is None else use.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            power_mw=self._call("nvmlDeviceGetPowerUsage", self._whole),
            power_limit_mw=self._limit_mw,
            sm_clock_mhz=self._call("nvmlDeviceGetClockInfo", self._whole, _SM_CLOCK),
            sm_clock_max_mhz=self._clock_max,
            memory_clock_mhz=self._call("nvmlDeviceGetClockInfo", self._whole, _MEMORY_CLOCK),
            temperature_c=self._call("nvmlDeviceGetTemperature", self._whole, _DIE_SENSOR),
            throttled_by=None if reasons is None else tuple(why for bit, why in _THROTTLES.items() if reasons & bit),
            shared=self._shared,
        )

    def close(self) -> None:
        """Shut NVML down; it counts its users, so it stays for others in the process."""
        with suppress(self._nvml.NVMLError):  # the driver may be gone, and NVML with it
            self._nvml.nvmlShutdown()

    def _call(self, name: str, *args: Any) -> Any:
        key = f"{name}{args[1:]}"
        if key in self._unsupported:
            return None
        try:
            return getattr(self._nvml, name)(*args)
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_NoPermission, AttributeError):
            self._unsupported.add(key)
        except self._nvml.NVMLError:
            pass  # may succeed at the next reading
        return None


def import_nvml() -> Any:
    """Return the module ``pynvml``. Raises ``MissingExtra``."""
    return import_extra("pynvml", "gpu", "devices")


def open_reader(
    nvml: Any, index: int, uuid: str | None, environment: Mapping[str, str] = os.environ
) -> tuple[NvmlReader | None, str | None]:
    """Return a reader for torch's device ``cuda:<index>``, or the reason why NVML cannot identify it.

    ``uuid`` is ``str(torch.cuda.get_device_properties(index).uuid)`` where torch has it: NVML numbers the devices of
    the machine by their place on the bus; torch numbers those of CUDA_VISIBLE_DEVICES, the fastest first.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    try:
        found = _find(nvml, index, uuid, environment)
    except nvml.NVMLError as error:
        found = f"NVML does not list the devices: {error}"
    if isinstance(found, str):
        nvml.nvmlShutdown()
        return None, found
    return NvmlReader(nvml, *found), None


def _find(nvml: Any, index: int, uuid: str | None, environment: Mapping[str, str]) -> tuple[Any, Any, str] | str:
    devices = list(_devices(nvml))
    if uuid is not None:
        bare = _bare(uuid)
        same = [device for device in devices if _bare(device[2]) == bare]
        return same[0] if same else f"NVML has no device {quoted(uuid)}"
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return _by_number(nvml, devices, index, environment)
    entries = [entry.strip() for entry in visible.split(",")]
    if index >= len(entries):
        return f"CUDA_VISIBLE_DEVICES names {len(entries)} devices, torch says cuda:{index}"
    entry = entries[index]
    if entry.isdigit():
        return _by_number(nvml, devices, int(entry), environment)
    same = [device for device in devices if device[2].startswith(entry)]  # CUDA accepts a unique prefix
    return same[0] if len(same) == 1 else f"{quoted(entry)} of CUDA_VISIBLE_DEVICES is not the UUID of one device"


def _by_number(
    nvml: Any, devices: list[tuple[Any, Any, str]], number: int, environment: Mapping[str, str]
) -> tuple[Any, Any, str] | str:
    whole = [device for device in devices if device[1] is None]
    if number >= len(whole):
        return f"NVML has {len(whole)} devices, none numbered {number}"
    in_bus_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not in_bus_order and len({_text(nvml.nvmlDeviceGetName(device[0])) for device in whole}) > 1:
        return "the devices differ and their order is unknown; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
    if any(device[1] is whole[number][0] for device in devices):
        return "the device is split into slices (MIG); which slice is in use is unknown"
    return whole[number]


def _devices(nvml: Any) -> Iterator[tuple[Any, Any, str]]:
    """Yield each device and each of its slices: its handle, the whole device's handle (None if it is one), its UUID."""
    for number in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(number)
        yield device, None, _text(nvml.nvmlDeviceGetUUID(device)) or ""
        for place in range(_or(0, nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, device)):
            part = _or(None, nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, place)
            if part is not None:
                yield part, device, _text(nvml.nvmlDeviceGetUUID(part)) or ""


def _or(otherwise: T, nvml: Any, function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except nvml.NVMLError:
        return otherwise


def _bare(uuid: str) -> str:
    for kind in ("GPU-", "MIG-"):
        uuid = uuid.removeprefix(kind)
    return uuid.lower()


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value  # older bindings give bytes
