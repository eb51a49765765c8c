"""Where frames go: the terminal, files, trackers and monitors. One file a sink; see ``docs/extending/sink.md``."""

from typing import TYPE_CHECKING, Any

from ._base import CalibratedSink, LiveSink, RunInfo, Sink
from ._kind import SINKS, CloseOrder, Export, SinkKind
from ._make import close_unused, make_sinks, open_sinks, writes_files

if TYPE_CHECKING:
    from ..base.options import Options
    from ._config import Config, Sinks, load_config, parse_config

__all__ = [
    "SINKS",
    "CalibratedSink",
    "CloseOrder",
    "Config",
    "Export",
    "LiveSink",
    "Options",
    "RunInfo",
    "Sink",
    "SinkKind",
    "Sinks",
    "close_unused",
    "load_config",
    "make_sinks",
    "open_sinks",
    "parse_config",
    "writes_files",
]


def __getattr__(name: str) -> Any:
    """Load pydantic only when a sink is defined or a configuration is read."""
    if name == "Options":
        from ..base.options import Options

        return Options
    if name in ("Config", "Sinks", "load_config", "parse_config"):
        from . import _config

        return getattr(_config, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
