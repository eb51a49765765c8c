"""Probes: attach hooks and wrappers to the user's program, and detach them."""

from .backward import BackwardProbe, Evaluations
from .boundary import BoundaryProbe
from .collectives import Reducer, probe_collectives
from .compilations import Compilations
from .compiling import step_aside_for_compiler
from .copies import CopyProbe
from .function import log_timing, probe_function, span, timed
from .handle import Handle, Probe
from .hooks import Hooks, make_hooks
from .loader import Fetches, TimedLoader, probe_loaders
from .logcalls import LogProbe
from .losses import probe_losses
from .modes import probe_modes
from .module import ModuleProbe
from .native_hooks import native_call_hook
from .optimizer import OptimizerHooks, OptimizerProbe
from .patch import PatchProbe
from .placement import Placement, find_anchor
from .range_probe import RangeProbe
from .ranges import Ranges, RangingRecorder, make_recorder
from .saving import probe_saving
from .scripting import hide_from_script
from .shapes import ShapeProbe
from .syncs import SyncProbe
from .update import probe_update

__all__ = [
    "BackwardProbe",
    "BoundaryProbe",
    "Compilations",
    "CopyProbe",
    "Evaluations",
    "Fetches",
    "Handle",
    "Hooks",
    "LogProbe",
    "ModuleProbe",
    "OptimizerHooks",
    "OptimizerProbe",
    "PatchProbe",
    "Placement",
    "Probe",
    "RangeProbe",
    "Ranges",
    "RangingRecorder",
    "Reducer",
    "ShapeProbe",
    "SyncProbe",
    "TimedLoader",
    "find_anchor",
    "hide_from_script",
    "log_timing",
    "make_hooks",
    "make_recorder",
    "native_call_hook",
    "probe_collectives",
    "probe_function",
    "probe_loaders",
    "probe_losses",
    "probe_modes",
    "probe_saving",
    "probe_update",
    "span",
    "step_aside_for_compiler",
    "timed",
]
