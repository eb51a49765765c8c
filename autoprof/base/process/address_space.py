"""Refuse our own work where the process has almost no address space left."""

from __future__ import annotations

import mmap
from typing import Any, Final

_FLAGS: Final[dict[str, Any]] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def require_address_space(mib: int = 16) -> None:
    """Raise ``MemoryError`` where the system does not give this process ``mib`` MiB more. Takes 3 µs.

    Where the buffer of a loop cannot be allocated, numpy sets its ``MemoryError`` without the GIL, which ends the
    process by a segmentation fault. So the memory is requested before numpy is called. It is mapped, not touched and
    not taken from malloc: a large block that is freed changes how malloc serves the program from then on.
    """
    try:
        mmap.mmap(-1, mib << 20, **_FLAGS).close()
    except OSError as error:
        raise MemoryError(f"less than {mib} MiB of address space left ({error.strerror})") from None
