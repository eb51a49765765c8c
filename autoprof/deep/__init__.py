"""Deep captures: record chosen steps with ``torch.profiler`` under autoprof's names, in files of bounded size."""

from .analyse import read_trace
from .block import DeepCapture, deep_capture
from .options import DeepOptions, FileNames, make_options, make_patterns
from .profile import SEED_PATTERNS, DeepProfile, joined
from .requested import RequestedCaptures
from .snapshot import SnapshotWindow
from .text import render_memory, render_profile
from .window import DeepWindow

__all__ = [
    "SEED_PATTERNS",
    "DeepCapture",
    "DeepOptions",
    "DeepProfile",
    "DeepWindow",
    "FileNames",
    "RequestedCaptures",
    "SnapshotWindow",
    "deep_capture",
    "joined",
    "make_options",
    "make_patterns",
    "read_trace",
    "render_memory",
    "render_profile",
]
