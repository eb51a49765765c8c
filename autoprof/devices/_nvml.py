"""Telemetry of NVIDIA devices through NVML: utilisation, memory, power, clocks, temperature, throttling."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from ..base.names import quoted
from ..errors import import_extra

_THROTTLES: Final = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x20: "software_thermal_slowdown",
    0x40: "hardware_thermal_slowdown",
    0x80: "power_brake",
}
"""Bits of nvmlDeviceGetCurrentClocksThrottleReasons that mean less than the requested speed (nvml.h); idle does not."""
_SM_CLOCK: Final = 1
_MEMORY_CLOCK: Final = 2
_DIE_SENSOR: Final = 0


class NvmlReader:
    """Read one device. Each value is a call into the driver, some take milliseconds: never call it in a step."""

    def __init__(self, nvml: Any, handle: Any, parent: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._whole = parent if parent is not None else handle
        self._shared = parent is not None
        self._unsupported: set[str] = set()

    def read(self) -> dict[str, float]:
        """Return a reading by metric. A value that the device does not support is tried once, others each time.

        Of a slice (MIG), power, clocks and temperature are those of the whole device. The utilization is the share of
        the last sampling period (1/6 to 1 s) in which any kernel ran, on however little of the device.
        """
        use = None if self._shared else self._call("nvmlDeviceGetUtilizationRates", self._handle)
        memory = self._call("nvmlDeviceGetMemoryInfo", self._handle)
        power_mw = self._call("nvmlDeviceGetPowerUsage", self._whole)
        reasons = self._call("nvmlDeviceGetCurrentClocksThrottleReasons", self._whole)
        causes = {"": sum(_THROTTLES), **{f"_by_{why}": bit for bit, why in _THROTTLES.items()}}
        values = {
            **{f"gpu_throttled{why}": None if reasons is None else bool(reasons & bit) for why, bit in causes.items()},
            "gpu_utilization": None if use is None else use.gpu / 100,
            "gpu_memory_bytes": None if memory is None else memory.used,
            "gpu_power_w": None if power_mw is None else power_mw / 1000,
            "gpu_sm_clock_mhz": self._call("nvmlDeviceGetClockInfo", self._whole, _SM_CLOCK),
            "gpu_memory_clock_mhz": self._call("nvmlDeviceGetClockInfo", self._whole, _MEMORY_CLOCK),
            "gpu_temperature_c": self._call("nvmlDeviceGetTemperature", self._whole, _DIE_SENSOR),
        }
        return {name: float(value) for name, value in values.items() if value is not None}

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


def open_reader(nvml: Any, uuid: str | None) -> tuple[NvmlReader | None, str | None]:
    """Return a reader for torch's device with this UUID, or the reason why NVML cannot identify it.

    The numbers of devices do not identify them: NVML counts those of the machine, torch the visible ones.
    """
    if uuid is None:
        return None, "this version of torch does not give the UUID of a device, by which NVML finds it"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    bare = uuid.lower().removeprefix("gpu-").removeprefix("mig-")
    parent = None
    try:
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
        except nvml.NVMLError:
            handle = nvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
            parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except nvml.NVMLError as error:
        nvml.nvmlShutdown()
        return None, f"NVML has no device {quoted(uuid)}: {error}"
    return NvmlReader(nvml, handle, parent), None
