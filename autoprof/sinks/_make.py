"""From the ``sinks`` key of a configuration to open sinks."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from ._base import RunInfo, Sink

if TYPE_CHECKING:
    from ..config.schema import Sinks


class _Kind(NamedTuple):
    """A sink: its module and class, whether it needs the run's folder, and whether every rank has one."""

    module: str
    name: str
    in_folder: bool
    every_rank: bool


KINDS: Final = {
    "log": _Kind("log", "LogSink", in_folder=True, every_rank=False),
    "jsonl": _Kind("jsonl", "JsonlSink", in_folder=True, every_rank=True),
    "csv": _Kind("csv", "CsvSink", in_folder=True, every_rank=True),
    "trace": _Kind("trace", "TraceSink", in_folder=True, every_rank=True),
    "speedscope": _Kind("speedscope", "SpeedscopeSink", in_folder=True, every_rank=True),
    "console": _Kind("console", "ConsoleSink", in_folder=False, every_rank=False),
    "tensorboard": _Kind("tensorboard", "TensorboardSink", in_folder=True, every_rank=True),
    "prometheus": _Kind("prometheus", "PrometheusSink", in_folder=False, every_rank=True),
    "opentelemetry": _Kind("opentelemetry", "OpentelemetrySink", in_folder=False, every_rank=True),
    "wandb": _Kind("wandb", "WandbSink", in_folder=False, every_rank=False),
    "mlflow": _Kind("mlflow", "MlflowSink", in_folder=False, every_rank=False),
    "memory_plot": _Kind("memory_plot", "MemoryPlotSink", in_folder=True, every_rank=False),
}
"""In the order in which they are closed: files first, then what others read, and the picture, which takes a second."""


def writes_files(sinks: Sinks) -> bool:
    """Say whether any of these sinks writes to the run's folder."""
    return any(getattr(sinks, key) is not None for key, kind in KINDS.items() if kind.in_folder)


def make_sinks(sinks: Sinks, run: RunInfo) -> tuple[Sink, ...]:
    """Open the sinks that ``sinks`` asks for, each loaded only then.

    Ranks other than 0 have their own records and endpoints; one terminal, one log, one plot and one tracker's run are
    enough. Without a folder there are only the sinks that need none. An error of one (``OutputError``,
    ``MissingExtra``, or what a tracker's own library raises) closes those already open.
    """
    made: list[Sink] = []
    try:
        for key, kind in KINDS.items():
            options = getattr(sinks, key)
            wanted = options is not None and (kind.every_rank or run.rank == 0)
            if wanted and (run.folder is not None or not kind.in_folder):
                made.append(getattr(import_module(f".{kind.module}", __package__), kind.name)(options, run))
    except BaseException:
        for sink in made:
            with suppress(Exception):
                sink.close(run.summary())
        raise
    return tuple(made)
