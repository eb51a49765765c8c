"""From the ``sinks`` key of a configuration to open sinks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ..summary import Summary
from ._base import RunInfo, Sink
from ._kind import SINKS, SinkKind

if TYPE_CHECKING:
    from .._options import Options
    from ..config import Sinks


def writes_files(sinks: Sinks) -> bool:
    """Return whether any of these sinks writes to the run's folder."""
    return any(kind.in_folder for kind, _ in _named(sinks))


def make_sinks(sinks: Sinks, run: RunInfo) -> tuple[Sink, ...]:
    """Open the sinks that the configuration names, in the order in which they are closed.

    Ranks other than 0 get only the kinds that every rank has. Without a folder there are only the kinds that need
    none. An error of one (``OutputError``, ``MissingExtra``, or an exception of a tracker's library) closes those
    already open.
    """
    made: list[Sink] = []
    try:
        for kind, options in _named(sinks):
            if (kind.every_rank or run.rank == 0) and (run.folder is not None or not kind.in_folder):
                made.append(kind.make(options, run))
    except BaseException:
        for sink in made:
            with suppress(Exception):
                sink.close(Summary.empty())
        raise
    return tuple(made)


def _named(sinks: Sinks) -> Iterator[tuple[SinkKind, Options]]:
    """Yield the kinds that are on, with their options, in the order in which they are closed."""
    kinds = SINKS.parts
    named = [(kinds[key], options) for key, options in sinks if options is not None]
    yield from sorted(named, key=lambda pair: pair[0].close_order)
