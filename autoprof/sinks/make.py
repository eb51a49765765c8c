"""From the ``sinks`` key of a configuration to open sinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .base import RunInfo, Sink
from .console import ConsoleSink
from .jsonl import JsonlSink
from .log import LogSink
from .memory_plot import MemoryPlotSink

if TYPE_CHECKING:
    from ..config.schema import Sinks


def make_sinks(sinks: Sinks, run: RunInfo) -> tuple[Sink, ...]:
    """Open the sinks that ``sinks`` asks for.

    Ranks other than 0 write only their own JSONL: one terminal, one log and one plot a run are enough. Without a
    folder there is only the console. They are closed in this order: the files at once, the picture last, for drawing
    takes a second. An ``OutputError`` of one sink closes those already open.
    """
    makers: list[Callable[[], Sink]] = []
    if run.folder is not None:
        if sinks.log is not None and run.rank == 0:
            log = sinks.log
            makers.append(lambda: LogSink(log, run))
        if sinks.jsonl is not None:
            jsonl = sinks.jsonl
            makers.append(lambda: JsonlSink(jsonl, run))
    if sinks.console is not None and run.rank == 0:
        console = sinks.console
        makers.append(lambda: ConsoleSink(console, run))
    if run.folder is not None and sinks.memory_plot is not None and run.rank == 0:
        memory_plot = sinks.memory_plot
        makers.append(lambda: MemoryPlotSink(memory_plot, run))
    made: list[Sink] = []
    try:
        made.extend(make() for make in makers)
    except BaseException:
        for sink in made:
            sink.close(run.summary())
        raise
    return tuple(made)
