"""What is attached to the user's program, and what undoes it."""

from .backward import BackwardProbe
from .boundary import BoundaryProbe
from .compilations import Compilations
from .compiling import step_aside_for_compiler
from .function import log_timing, probe_function, span, timed
from .handle import Handle, Probe
from .hooks import make_hooks
from .loader import TimedLoader
from .logcalls import LogProbe
from .module import ModuleProbe
from .optimizer import probe_optimizers
from .placement import Placement, find_anchor
from .scripting import hide_from_script
from .syncs import SyncProbe

__all__ = [
    "BackwardProbe",
    "BoundaryProbe",
    "Compilations",
    "Handle",
    "LogProbe",
    "ModuleProbe",
    "Placement",
    "Probe",
    "SyncProbe",
    "TimedLoader",
    "find_anchor",
    "hide_from_script",
    "log_timing",
    "make_hooks",
    "probe_function",
    "probe_optimizers",
    "span",
    "step_aside_for_compiler",
    "timed",
]
