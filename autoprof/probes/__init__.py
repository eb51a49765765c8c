"""What is attached to the user's program, and what undoes it."""

from .boundary import BoundaryProbe
from .function import log_timing, probe_function, span, timed
from .handle import Handle
from .hooks import make_hooks
from .loader import TimedLoader
from .module import ModuleProbe
from .optimizer import probe_optimizers

__all__ = [
    "BoundaryProbe",
    "Handle",
    "ModuleProbe",
    "TimedLoader",
    "log_timing",
    "make_hooks",
    "probe_function",
    "probe_optimizers",
    "span",
    "timed",
]
