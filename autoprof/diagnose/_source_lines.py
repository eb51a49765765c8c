"""Lines of source files, for evidence that names them."""

from __future__ import annotations

import linecache
from contextlib import suppress
from functools import lru_cache
from itertools import islice


@lru_cache(maxsize=256)
def source_line(file: str, line: int) -> str:
    """Return a line of a file without the space around it, or an empty string.

    The file is read up to the line, as UTF-8, for that is done in a step. ``linecache`` would read all of it, and keep
    its lines for the rest of the run: a megabyte for those of torch.
    """
    if file not in linecache.cache:  # it has the cells of notebooks
        with suppress(OSError, ValueError), open(file, "rb") as lines:
            return b"".join(islice(lines, max(line, 1) - 1, line)).decode("utf-8", "replace").strip()
    return _cached_line(file, line)


def _cached_line(file: str, line: int) -> str:
    """Return a line of a file that is none of the file system's: of a notebook, or inside of an archive."""
    known = file in linecache.cache
    text = linecache.getline(file, line).strip()
    if not known:
        linecache.cache.pop(file, None)
    return text
