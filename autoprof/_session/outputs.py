"""Where a run's reports go: its folder, and the sinks that the configuration names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import torch

from .._capture.handle import Handle
from ..devices import device_of

if TYPE_CHECKING:
    from .._storage.runs import RunFolder
    from ..config import Config
    from ..sinks import Sink
    from ..summary import Summary


def make_folder(settings: Config, device: torch.device, undo: Handle) -> RunFolder | None:
    """Make the folder that this run's sinks write to; None where none of them writes files."""
    from .._storage.runs import RunFolder
    from ..sinks import writes_files

    if not writes_files(settings.sinks) and settings.memory_snapshot is None and settings.deep is None:
        return None

    number, world_size = _rank()
    folder = RunFolder.create(
        settings.output,
        rank=number,
        world_size=world_size,
        name=_shared_name() if world_size > 1 else None,
        config=settings.model_dump(mode="json"),
        devices=[device_of(device).name(device)],
    )
    undo.add(folder.discard)
    return folder


def make_run_sinks(
    settings: Config,
    folder: RunFolder | None,
    summary: Callable[[], Summary],
    parts: Callable[[], Iterator[Summary]],
    limit_ns: Callable[[], int],
) -> tuple[Sink, ...]:
    """Make the sinks that the configuration names."""
    if all(options is None for _, options in settings.sinks):
        return ()
    from ..sinks import RunInfo, make_sinks

    run = RunInfo(folder=folder, rank=rank(), summary=summary, stream=sys.stdout, clock_limit_ns=limit_ns, parts=parts)
    return make_sinks(settings.sinks, run)


def close_sinks(sinks: Iterable[Sink], summary: Summary) -> None:
    """Close what was made for a session that did not begin; what it wrote goes with its folder."""
    for sink in sinks:
        with suppress(Exception):
            sink.close(summary)


def world_size() -> int:
    """Return how many processes train together."""
    return _rank()[1]


def rank() -> int:
    """Return which of them this one is."""
    return _rank()[0]


def _rank() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1


def _shared_name() -> str:
    """Name the run alike on all ranks of this host, without a word between them: they have one parent, the launcher."""
    parent = os.getppid()
    try:
        started = os.stat(f"/proc/{parent}").st_mtime
    except OSError:
        return f"launch-{parent}"
    return f"{datetime.fromtimestamp(started):%Y-%m-%d_%H-%M-%S}-{parent}"
