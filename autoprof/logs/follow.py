"""Read logs that are still being written: again whenever they have changed, at a bounded cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import AutoprofError
from .files import find_files
from .inputs import PipeCopies, shown_name
from .load import NoRecordError, Paths, list_paths, read_logs

if TYPE_CHECKING:
    import pandas as pd

_PAUSE_PER_CPU_S: Final = 4.0
"""Seconds without work after each second of it: following a large log takes a fifth of one core at most."""


@dataclass(frozen=True, slots=True)
class _FileState:
    """The place and the size of a file, by which a change is noticed."""

    inode: tuple[int, int]
    size: int
    changed_ns: int

    def begins_again(self, before: _FileState) -> bool:
        """Return whether the file was replaced or cut since ``before``."""
        return self.inode != before.inode or self.size < before.size


@dataclass(frozen=True, eq=False, slots=True)
class FollowedLogs:
    """The logs as they were when they were read."""

    table: pd.DataFrame | None
    """None without a record so far."""
    notes: tuple[str, ...] = ()
    """Sentences about files without a record so far, and files that were replaced or cut."""


class LogFollower:
    """Reads logs again whenever one of them has changed.

    ``find`` returns the paths, as for ``load_logs``; ``options`` are those of ``load_logs``. Raises ``AutoprofError``
    as ``load_logs`` at the first reading, but waits for the first record. A file that is replaced (log rotation) or
    cut is read from its new beginning.
    """

    def __init__(
        self,
        find: Callable[[], Paths],
        *,
        options: Mapping[str, Any],
        interval_s: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._find = find
        self._options = options
        self._interval_s = interval_s
        self._sleep = sleep
        self._states: dict[Path, _FileState] = {}
        self._began_again: dict[str, int] = {}
        self._has_begun = False

    def readings(self) -> Iterator[FollowedLogs]:
        """Yield the logs at first and after each change; end where all logs are pipes that have ended."""
        with PipeCopies(growing=True) as pipes:
            while True:
                has_ended = bool(self._states) and pipes.have_ended(self._states)
                began = time.process_time()
                found = self._read_if_changed(pipes)
                if found is not None:
                    yield found
                if has_ended:
                    return
                self._sleep(max(self._interval_s, _PAUSE_PER_CPU_S * (time.process_time() - began)))

    def _read_if_changed(self, pipes: PipeCopies) -> FollowedLogs | None:
        try:
            paths = self._find()
            states = {file: _state_of(pipes.source_of(file)) for path in list_paths(paths) for file in find_files(path)}
        except (AutoprofError, OSError):
            if self._has_begun:  # the log was moved, and the next one is not there yet
                return None
            raise
        if states == self._states and self._has_begun:
            return None
        for file, state in states.items():
            before = self._states.get(file)
            if before is not None and state.begins_again(before):
                name = shown_name(file)
                self._began_again[name] = self._began_again.get(name, 0) + 1
        self._states, self._has_begun = states, True
        notes = [
            f"{name} was replaced or cut{'' if count == 1 else f' {count} times'}: earlier records are not shown"
            for name, count in self._began_again.items()
        ]
        try:
            table = read_logs(paths, pipes, progress=False, **self._options)
        except NoRecordError:
            return FollowedLogs(None, (*notes, "no training record so far"))
        except FileNotFoundError:
            return None  # it was moved while it was read
        return FollowedLogs(table, tuple(notes))


def _state_of(file: Path) -> _FileState:
    found = file.stat()
    return _FileState((found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns)
