"""Replace a file in one step: a reader, or a process that is killed, never leaves or meets half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ...errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a draft beside ``path``; it replaces ``path`` unless the block raises, and is removed then."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace the content of ``path``."""
    with replacing(path) as draft:
        draft.write_bytes(content.encode("utf-8", "replace") if isinstance(content, str) else content)


@contextmanager
def open_replacing(path: Path) -> Iterator[TextIO]:
    """Open a text file that replaces ``path``. Raises ``OutputError`` where the file cannot be written."""
    try:
        with replacing(path) as draft, draft.open("w", encoding="utf-8", errors="replace", newline="") as file:
            yield file
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); it must be a file in a folder") from error
