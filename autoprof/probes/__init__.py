"""What is attached to the user's program, and what undoes it."""

from .backward import BackwardProbe
from .boundary import BoundaryProbe
from .compiling import step_aside_for_compiler
from .function import log_timing, probe_function, span, timed
from .handle import Handle
from .hooks import make_hooks
from .loader import TimedLoader
from .module import ModuleProbe
from .optimizer import OptimizerHooks, OptimizerProbe
from .placement import Placement, find_anchor
from .range_probe import RangeProbe
from .ranges import Ranges
from .scripting import hide_from_script
from .shapes import ShapeProbe

__all__ = [
    "BackwardProbe",
    "BoundaryProbe",
    "Handle",
    "ModuleProbe",
    "OptimizerHooks",
    "OptimizerProbe",
    "Placement",
    "RangeProbe",
    "Ranges",
    "ShapeProbe",
    "TimedLoader",
    "find_anchor",
    "hide_from_script",
    "log_timing",
    "make_hooks",
    "probe_function",
    "span",
    "step_aside_for_compiler",
    "timed",
]
