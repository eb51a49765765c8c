"""Hooks on modules, autograd nodes and optimizers, and spans in the user's code."""

from .backward import BackwardProbe, unwatch_backward, unwatch_grad, watch_backward, watch_grad
from .boundary import BoundaryProbe
from .call_sites import keep_calls
from .checkpointing import SEES_CHECKPOINTS, CheckpointListener, CheckpointMarks, CheckpointProbe
from .compiled_calls import relay_compiled_calls
from .compiled_checkpoints import watch_compiled_checkpoints
from .function import log_timing, probe_function, span, timed
from .hooks import Hooks, make_hooks
from .module import ModuleProbe
from .optimizer_hooks import OptimizerHooks, running_steps
from .placement import Placement, find_anchor
from .ranges import CheckpointRanges, RangeProbe, Ranges, RangingRecorder, make_recorder
from .shapes import ShapeProbe

__all__ = [
    "SEES_CHECKPOINTS",
    "BackwardProbe",
    "BoundaryProbe",
    "CheckpointListener",
    "CheckpointMarks",
    "CheckpointProbe",
    "CheckpointRanges",
    "Hooks",
    "ModuleProbe",
    "OptimizerHooks",
    "Placement",
    "RangeProbe",
    "Ranges",
    "RangingRecorder",
    "ShapeProbe",
    "find_anchor",
    "keep_calls",
    "log_timing",
    "make_hooks",
    "make_recorder",
    "probe_function",
    "relay_compiled_calls",
    "running_steps",
    "span",
    "timed",
    "unwatch_backward",
    "unwatch_grad",
    "watch_backward",
    "watch_compiled_checkpoints",
    "watch_grad",
]
