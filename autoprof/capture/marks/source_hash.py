"""The hash of the extension's sources, by which a build of other sources is recognised.

``setup.py`` runs this file before autoprof's dependencies are installed: it imports the standard library only.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path


def source_hash(folder: Path = Path(__file__).parent) -> str | None:
    """Return the hash of the C files in ``folder``; None where there are none, as in an installed wheel."""
    files = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    whole = sha256()
    for file in files:
        whole.update(file.name.encode() + b"\0" + file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return whole.hexdigest() if files else None
