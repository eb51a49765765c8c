"""Memory of the model and its optimizers: bytes by name, the summary's memory table, the allocator's snapshot."""

from .extents import bytes_of, extents
from .footprint import Footprint, Held, Holdings
from .snapshot import SnapshotWindow
from .table import tabulate

__all__ = ["Footprint", "Held", "Holdings", "SnapshotWindow", "bytes_of", "extents", "tabulate"]
