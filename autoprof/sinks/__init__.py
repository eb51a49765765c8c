"""Where frames go: the console, the readable log, JSON lines and the memory plot. One file a sink."""

from .base import RunInfo, Sink
from .make import make_sinks

__all__ = ["RunInfo", "Sink", "make_sinks"]
