"""The bytes in use of those that the C library has given out, without the freed ones that it keeps."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

PYTHON_BLOCK_BYTES: Final = 64
"""The usual size of a block of Python's own allocator, whose memory does not come from the C library."""


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of the GNU C library (mallinfo(3))."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def heap_bytes() -> int | None:
    """Return the bytes in use: of tensors on the CPU, arrays and Python's objects. None where nothing counts them.

    Freed memory that the C library has not returned to the system is part of the resident set, and not of this.
    """
    read = _reader()
    if read is None:
        return None
    info = read()
    return int(info.uordblks + info.hblkhd) + PYTHON_BLOCK_BYTES * sys.getallocatedblocks()


@cache
def _reader() -> Callable[[], Any] | None:
    """Return the function of the C library, if the process allocates by it and not by another allocator."""
    try:
        own, library = ctypes.CDLL(None), ctypes.CDLL("libc.so.6")
        if ctypes.cast(own.malloc, ctypes.c_void_p).value != ctypes.cast(library.malloc, ctypes.c_void_p).value:
            return None  # jemalloc, tcmalloc and others are loaded before it
        read = library.mallinfo2
    except (OSError, AttributeError):
        return None
    read.restype = _MallInfo
    read.argtypes = []
    return read
