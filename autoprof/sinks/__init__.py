"""Where frames go: the terminal, files, trackers and monitors. One file a sink."""

from .base import RunInfo, Sink
from .make import make_sinks, writes_files

__all__ = ["RunInfo", "Sink", "make_sinks", "writes_files"]
