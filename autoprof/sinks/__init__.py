"""Where frames go: the terminal, files, trackers and monitors. One file a sink."""

from ._base import Display, RunInfo, Sink
from ._make import make_sinks, writes_files

__all__ = ["Display", "RunInfo", "Sink", "make_sinks", "writes_files"]
