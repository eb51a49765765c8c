"""What the machine can do and what it does: peaks from data sheets, readings of devices and of the host."""

from .host import HostReader, HostReading
from .monitor import Monitor
from .nvml import DeviceReader, DeviceReading, open_device
from .peaks import PEAKS, Peak, find_peak
from .utilization import Flags, Utilization, arithmetic, peak_seconds, tf32_flags, utilization

__all__ = [
    "PEAKS", "DeviceReader", "DeviceReading", "Flags", "HostReader", "HostReading", "Monitor", "Peak", "Utilization",
    "arithmetic", "find_peak", "open_device", "peak_seconds", "tf32_flags", "utilization",
]  # fmt: skip
