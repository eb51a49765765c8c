"""Bytes: what the process or a device's allocator has in use, and what the model and its optimizers hold of it."""

from .fake import FakeAllocator
from .footprint import Footprint, Held, Holdings
from .held import bytes_of, extents
from .snapshot import SnapshotWindow
from .sources import DeviceMemory, HostMemory, Memory, choose_memory
from .table import tabulate

__all__ = [
    "DeviceMemory",
    "FakeAllocator",
    "Footprint",
    "Held",
    "Holdings",
    "HostMemory",
    "Memory",
    "SnapshotWindow",
    "bytes_of",
    "choose_memory",
    "extents",
    "tabulate",
]
