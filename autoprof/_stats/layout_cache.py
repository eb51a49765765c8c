"""Cache results that depend on a layout alone, until a session ends: its layouts are of no more use then."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from ..frame import Layout

Result = TypeVar("Result")
Further = ParamSpec("Further")
"""Arguments beside the layout."""

_caches: Final[list[Any]] = []


def cached_by_layout(
    compute: Callable[Concatenate[Layout, Further], Result],
) -> Callable[Concatenate[Layout, Further], Result]:
    """Return the function with a cache of its results for the last layouts."""
    cached: Any = lru_cache(maxsize=128)(compute)  # its type knows no arguments
    _caches.append(cached)
    return cast("Callable[Concatenate[Layout, Further], Result]", cached)


def forget_layouts() -> None:
    """Empty all these caches; a session that is still open fills them again."""
    for cached in _caches:
        cached.cache_clear()
