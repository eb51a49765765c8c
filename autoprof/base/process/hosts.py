"""The number of this host, by which processes know whether they can see each other's ids."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path


def host_number() -> int:
    """Return a number of 63 bits for this host since its boot, and for the table of processes that this one sees."""
    facts = [platform.node()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):
            facts.append(os.readlink(path) if os.path.islink(path) else Path(path).read_text(encoding="utf-8"))
    return int.from_bytes(blake2b("\0".join(facts).encode(), digest_size=8).digest(), "little") >> 1
