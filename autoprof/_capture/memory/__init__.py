"""Memory of the model and its optimizers: bytes by name, the summary's memory table, the allocator's snapshot."""

from .footprint import Footprint, Held, Holdings
from .held import bytes_of, extents
from .snapshot import SnapshotWindow
from .table import tabulate

__all__ = ["Footprint", "Held", "Holdings", "SnapshotWindow", "bytes_of", "extents", "tabulate"]
