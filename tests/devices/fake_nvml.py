"""A machine of NVIDIA devices that the test makes up, behind the names of ``pynvml``."""

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """An answer of the driver."""


class NVMLError_NotSupported(NVMLError):
    """This device does not tell."""


class NVMLError_NoPermission(NVMLError):
    """Not to this user."""


class FakeNvml:
    """The module, with the devices given; ``calls`` has the functions called, ``broken`` those that fail for now."""

    NVMLError = NVMLError
    NVMLError_NotSupported = NVMLError_NotSupported
    NVMLError_NoPermission = NVMLError_NoPermission

    def __init__(self, *devices: dict[str, Any], starts: bool = True) -> None:
        self.devices = devices
        self.starts = starts
        self.users = 0
        self.calls: list[str] = []
        self.broken: set[str] = set()
        self.unsupported: set[str] = set()

    def nvmlInit(self) -> None:
        if not self.starts:
            raise NVMLError("Driver Not Loaded")
        self.users += 1

    def nvmlShutdown(self) -> None:
        self.users -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        known = [one for device in self.devices for one in (device, *device.get("slices", ()))]
        found = [one for one in known if one["uuid"] == uuid]
        if not found:
            raise NVMLError("Not Found")
        return found[0]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Any) -> Any:
        return next(device for device in self.devices if handle in device.get("slices", ()))

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return self._answer("utilization", SimpleNamespace(gpu=handle.get("busy", 87), memory=40))

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        return self._answer("memory", SimpleNamespace(used=handle.get("used", 10), total=80 << 30, free=1))

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return self._answer("power", handle.get("power", 650_000))

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        return self._answer("clock", {1: 1755, 2: 2619}[kind])

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return self._answer("temperature", 64)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return self._answer("throttle", handle.get("throttle", 0))

    def _answer(self, function: str, value: Any) -> Any:
        self.calls.append(function)
        if function in self.unsupported:
            raise NVMLError_NotSupported("Not Supported")
        if function in self.broken:
            raise NVMLError("GPU is lost")
        return value
