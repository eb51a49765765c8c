"""Where frames go: the terminal, files, trackers and monitors. One file a sink; see ``docs/extending/sink.md``."""

from typing import TYPE_CHECKING, Any

from ._base import (
    CalibratedSink,
    DiscardedSink,
    LimitedSink,
    LiveSink,
    RefreshedSink,
    RunInfo,
    Sink,
)
from ._kind import SINKS, CloseOrder, Export, SinkKind
from ._make import close_unused, make_sinks, only_on_rank_0, open_sinks, writes_files

if TYPE_CHECKING:
    from .._options import Options

__all__ = [
    "SINKS",
    "CalibratedSink",
    "CloseOrder",
    "DiscardedSink",
    "Export",
    "LimitedSink",
    "LiveSink",
    "Options",
    "RefreshedSink",
    "RunInfo",
    "Sink",
    "SinkKind",
    "close_unused",
    "make_sinks",
    "only_on_rank_0",
    "open_sinks",
    "writes_files",
]


def __getattr__(name: str) -> Any:
    """Load ``Options``, and with it pydantic, only when a sink is defined: the process that draws needs neither."""
    if name == "Options":
        from .._options import Options

        return Options
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
