"""What is attached to the user's program, and what undoes it."""

from .backward import BackwardProbe
from .boundary import BoundaryProbe
from .compiling import step_aside_for_compiler
from .function import log_timing, probe_function, span, timed
from .handle import Handle
from .hooks import make_hooks
from .loader import TimedLoader
from .module import ModuleProbe
from .optimizer import probe_optimizers
from .range_probe import RangeProbe
from .ranges import RangingRecorder, make_recorder
from .scripting import hide_from_script

__all__ = [
    "BackwardProbe",
    "BoundaryProbe",
    "Handle",
    "ModuleProbe",
    "RangeProbe",
    "RangingRecorder",
    "TimedLoader",
    "hide_from_script",
    "log_timing",
    "make_hooks",
    "make_recorder",
    "probe_function",
    "probe_optimizers",
    "span",
    "step_aside_for_compiler",
    "timed",
]
