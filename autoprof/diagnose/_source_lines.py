"""Lines of source files, for evidence that names them."""

from __future__ import annotations

import linecache
from functools import lru_cache


@lru_cache(maxsize=256)
def source_line(file: str, line: int) -> str:
    """Return a line of a file without the space around it, or an empty string.

    ``linecache`` would keep all lines of each file for the rest of the run: a megabyte for those of torch.
    """
    known = file in linecache.cache
    text = linecache.getline(file, line).strip()
    if not known:
        linecache.cache.pop(file, None)
    return text
