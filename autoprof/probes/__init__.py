"""What is attached to the user's program, and what undoes it."""

from .backward import BackwardProbe, Evaluations
from .boundary import BoundaryProbe
from .collectives import Reducer, probe_collectives
from .compiling import step_aside_for_compiler
from .copies import CopyProbe
from .function import log_timing, probe_function, span, timed
from .handle import Handle
from .hooks import Hooks, make_hooks
from .loader import Fetches, TimedLoader, probe_loaders
from .losses import probe_losses
from .module import ModuleProbe
from .optimizer import probe_optimizers
from .patch import PatchProbe
from .saving import probe_saving
from .scripting import hide_from_script
from .update import probe_update

__all__ = [
    "BackwardProbe",
    "BoundaryProbe",
    "CopyProbe",
    "Evaluations",
    "Fetches",
    "Handle",
    "Hooks",
    "ModuleProbe",
    "PatchProbe",
    "Reducer",
    "TimedLoader",
    "hide_from_script",
    "log_timing",
    "make_hooks",
    "probe_collectives",
    "probe_function",
    "probe_loaders",
    "probe_losses",
    "probe_optimizers",
    "probe_saving",
    "probe_update",
    "span",
    "step_aside_for_compiler",
    "timed",
]
