"""Standard input and pipes as files: their bytes are copied, because a log is read more than once."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from ..errors import OutputError

STANDARD_INPUT: Final = Path("-")
"""The path that means standard input. A file of this name is ``./-``."""
_CHUNK: Final = 1 << 20


def is_pipe(path: Path) -> bool:
    """Return whether a path can be read only once: standard input, a FIFO, ``/dev/fd/63`` of a process substitution."""
    return path == STANDARD_INPUT or (path.exists() and not path.is_file() and not path.is_dir())


def shown_name(path: Path) -> str:
    """Return the name of a path in reports and errors."""
    return "standard input" if path == STANDARD_INPUT else str(path)


class PipeCopies:
    """Copies of pipes in a temporary folder, each made once; ``close`` removes them.

    With ``growing`` a pipe is copied by a thread, so that a log can be read while it grows. Raises ``OutputError``
    if a pipe cannot be read or its copy cannot be written.
    """

    def __init__(self, *, growing: bool = False) -> None:
        self._growing = growing
        self._folder: str | None = None
        self._copies: dict[Path, Path] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> PipeCopies:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the copies."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def have_ended(self, paths: Collection[Path]) -> bool:
        """Return whether all these paths are pipes that were copied to their end."""
        return all(path in self._copies for path in paths) and not any(map(threading.Thread.is_alive, self._threads))

    def source_of(self, path: Path) -> Path:
        """Return the file to read for a path: the path itself, or the copy of a pipe."""
        if path in self._copies:
            return self._copies[path]
        if not is_pipe(path):
            return path
        try:
            if self._folder is None:
                self._folder = tempfile.mkdtemp(prefix="autoprof-")
            copy = self._copies[path] = Path(self._folder) / f"pipe{len(self._copies)}"
            out = open(copy, "wb", buffering=0)  # noqa: SIM115 - the thread closes it
        except OSError as error:
            raise _failed(path, error) from error
        if self._growing:
            thread = threading.Thread(target=self._copy_quietly, args=(path, out), daemon=True)
            self._threads.append(thread)
            thread.start()
        else:
            try:
                _copy(path, out)
            except OSError as error:
                raise _failed(path, error) from error
        return copy

    def _copy_quietly(self, path: Path, out: Any) -> None:
        with contextlib.suppress(OSError):  # the reader ends with the copied part
            _copy(path, out)


def _failed(path: Path, error: OSError) -> OutputError:
    reason = f"cannot be copied to a temporary file: {error.strerror}"
    return OutputError(f"{shown_name(path)}: {reason}; allowed: a readable pipe, and room in {tempfile.gettempdir()}")


def _copy(path: Path, out: Any) -> None:
    with out:
        for chunk in _chunks(path):
            out.write(chunk)


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a pipe as they arrive, without a buffer that a thread could hold at exit."""
    descriptor = 0 if path == STANDARD_INPUT else os.open(path, os.O_RDONLY)
    try:
        while chunk := os.read(descriptor, _CHUNK):
            yield chunk
    finally:
        if descriptor:
            os.close(descriptor)
