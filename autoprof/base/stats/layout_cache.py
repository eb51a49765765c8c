"""Keep results that depend on a layout alone with the layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ..frame import Layout

Result = TypeVar("Result")


def cached_by_layout(compute: Callable[[Layout], Result]) -> Callable[[Layout], Result]:
    """Return the function with its result kept as long as the layout."""
    name = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def cached(layout: Layout) -> Result:
        kept = vars(layout)
        if name not in kept:
            kept[name] = compute(layout)
        found: Result = kept[name]
        return found

    return cached
