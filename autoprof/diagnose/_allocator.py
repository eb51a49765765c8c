"""Signs of a caching allocator that has no piece large enough, of its counters alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ._bounds import GOOD_PART
from ._thresholding import is_above

MIN_UNUSED_BYTES: Final = 512 * 2**20
"""Less than this is the allocator's normal rounding."""


def is_fragmented(memory: Mapping[str, int]) -> bool:
    """Return whether the reserved memory would suffice in one piece: then fragmentation causes the retries."""
    unused = memory.get("reserved_bytes", 0) - memory.get("peak_bytes", 0)
    return unused >= MIN_UNUSED_BYTES and is_above(unused / memory["reserved_bytes"], GOOD_PART)


def times(count: int) -> str:
    """Return a number of events as text."""
    return "once" if count == 1 else f"{count} times"
