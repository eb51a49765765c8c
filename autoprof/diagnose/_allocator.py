"""Signs of a caching allocator that has no piece large enough, of its counters alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MIN_UNUSED_SHARE: Final = 0.25
"""Reserved memory that was never in use at the same time, over all reserved memory."""
MIN_UNUSED_BYTES: Final = 512 * 2**20
"""Less than this is the allocator's normal rounding."""
MIN_RETRIES: Final = 3
"""Times that the allocator released its cache and tried again, each time waiting for the device. The first steps, which
try kernels, may cause one or two."""


def is_fragmented(memory: Mapping[str, int]) -> bool:
    """Return whether the reserved memory would suffice in one piece: then fragmentation causes the retries."""
    unused = memory.get("reserved_bytes", 0) - memory.get("peak_bytes", 0)
    return unused >= MIN_UNUSED_BYTES and unused >= MIN_UNUSED_SHARE * memory["reserved_bytes"]


def times(count: int) -> str:
    """Return a number of events as text."""
    return "once" if count == 1 else f"{count} times"
