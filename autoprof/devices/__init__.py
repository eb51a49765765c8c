"""Devices: the clock, memory, telemetry, peaks and waiting calls of each kind of device.

A kind of device is one file of this package without leading underscore, or an entry point of the group
``autoprof.devices``. Everything that such a file needs is exported here.
"""

from ._allocator_history import AllocatorHistory
from ._clock import Clock, ClockLimits, DeviceTimes, HostClock, Place, Reading, Times
from ._device import DEVICES, HOST_TYPES, Device, ask_devices, device_of
from ._device_clock import DeviceClock, EventSource, Stamp
from ._heap import heap_bytes
from ._memory import AllocatorMemory, HostMemory, Memory
from ._monitor import Monitor, TelemetryReader
from ._peaks import Arithmetic, Peak, Tf32Flags, find_peak
from ._telemetry import HostReader, available_cores

__all__ = [
    "DEVICES", "HOST_TYPES", "AllocatorHistory", "AllocatorMemory", "Arithmetic", "Clock",
    "ClockLimits", "Device", "DeviceClock", "DeviceTimes", "EventSource", "HostClock", "HostMemory", "HostReader",
    "Memory", "Monitor", "Peak", "Place", "Reading", "Stamp", "TelemetryReader", "Tf32Flags", "Times",
    "ask_devices", "available_cores", "device_of", "find_peak", "heap_bytes",
]  # fmt: skip
