"""Memory of the model and its optimizers: bytes by name, the memory table of the summary."""

from .extents import bytes_of, extents
from .footprint import Footprint
from .table import tabulate

__all__ = ["Footprint", "bytes_of", "extents", "tabulate"]
