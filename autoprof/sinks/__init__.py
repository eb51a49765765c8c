"""Where frames go: the terminal, files, trackers and monitors. One file a sink."""

from .base import Display, RunInfo, Sink
from .make import make_sinks, writes_files

__all__ = ["Display", "RunInfo", "Sink", "make_sinks", "writes_files"]
