"""From the ``sinks`` key of a configuration to open sinks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Final, TextIO

from ..base.allowance import Allowance
from ..base.failures import describe
from ..base.names import shorten
from ..base.process.ranks import rank, world_size
from ..base.signals import raised_by_handler
from ..base.summary import Summary
from ..errors import AutoprofError, OutputError
from ._base import RunInfo, Sink
from ._kind import SINKS, SinkKind

if TYPE_CHECKING:
    from ..base.options import Options
    from ..base.storage.runs import RunFolder
    from ._config import Config, Sinks

GROWING_BYTES_PER_MB: Final = 900_000
"""The part of each MB of ``output_max_mb`` for files that grow; a tenth stays for summaries, figures and windows."""


def writes_files(sinks: Sinks) -> bool:
    """Return whether any of these sinks writes to the run's folder."""
    return any(kind.in_folder for _, kind, _ in _named(sinks))


def open_sinks(
    settings: Config,
    folder: RunFolder | None,
    stream: TextIO | None,
    figures: Allowance,
    warn: Callable[[str], object],
    reader: str | None = None,
) -> tuple[Sink, ...]:
    """Open the sinks of a session. ``stream`` is for text for people, by default the standard output.

    ``reader`` is their working directory, where it may be another than the program's.

    ``figures`` pays for pictures that the configuration does not name.
    """
    limit_mb = settings.output_max_mb
    facts = RunInfo(
        folder=folder,
        rank=rank(),
        stream=stream or sys.stdout or StringIO(),  # ``python train.py >&-`` has no standard output
        max_bytes=None if limit_mb is None else int(limit_mb * GROWING_BYTES_PER_MB) // world_size(),
        figures=None if "sinks" in settings.model_fields_set else figures,
        warn=warn,
        reader=reader,
    )
    return make_sinks(settings.sinks, facts)


def make_sinks(sinks: Sinks, run: RunInfo) -> tuple[Sink, ...]:
    """Open the sinks that the configuration names, in the order in which they are closed.

    Ranks other than 0 get only the kinds that every rank has. Without a folder there are only the kinds that need
    none. Those that grow share ``run.max_bytes``. Raises
    ``OutputError`` or ``MissingExtra`` where one cannot be opened; those already open are closed.
    """
    made: list[Sink] = []
    wanted = [
        (key, kind, options)
        for key, kind, options in _named(sinks)
        if (kind.every_rank or run.rank == 0) and (run.folder is not None or not kind.in_folder)
    ]
    growing = sum(kind.grows for _, kind, _ in wanted)
    if run.max_bytes is not None and growing:
        run = replace(run, max_bytes=run.max_bytes // growing)
    try:
        made.extend(_open(key, kind, options, run) for key, kind, options in wanted)
    except BaseException:
        close_unused(made)
        raise
    return tuple(made)


def close_unused(sinks: Iterable[Sink]) -> None:
    """Close the sinks of a session that did not begin; their files go with its folder."""
    for sink in sinks:
        with suppress(Exception):
            sink.close(Summary.empty())


def _open(key: str, kind: SinkKind, options: Options, run: RunInfo) -> Sink:
    """Open one sink; an exception of the system or of a tracker's library becomes an ``OutputError``."""
    try:
        return kind.make(options, run)
    except AutoprofError:
        raise
    except Exception as error:
        if raised_by_handler(error):
            raise
        shown = shorten(" ".join(describe(error).split()), 300)
        raise OutputError(f"sinks.{key}: cannot be opened ({shown}); {kind.remedy}, or remove the key {key}") from error


def _named(sinks: Sinks) -> Iterator[tuple[str, SinkKind, Options]]:
    """Yield the keys that are on, with their kinds and options, in the order in which they are closed."""
    kinds = SINKS.parts
    named = [(key, kinds[key], options) for key, options in sinks if options is not None]
    yield from sorted(named, key=lambda one: one[1].close_order)
