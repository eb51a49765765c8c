"""The folders that hold installed packages: a line in one of them is a library's, not the user's."""

from __future__ import annotations

import json
import os
import site
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_FOLDERS: Final = frozenset({"site-packages", "dist-packages"})
"""The folders into which packages are installed, whichever interpreter or environment they are of."""


def is_installed(file: str) -> bool:
    """Return whether a file is an installed package's; a package installed as editable is the user's own."""
    return not _FOLDERS.isdisjoint(file.split(os.sep)) or file.startswith(_listed_folders())


@cache
def _listed_folders() -> tuple[str, ...]:
    """Return the other folders of packages.

    They are those that ``.pth`` files add, without editable packages, and those on the path of modules that hold the
    records of an installation, as ``pip install --target`` makes them.
    """
    places = [Path(place) for place in (*site.getsitepackages(), site.getusersitepackages())]
    listed = {folder for place in places for folder in _listed(place)}
    listed |= {os.path.join(os.path.abspath(entry), "") for entry in sys.path if any(Path(entry).glob("*.dist-info"))}
    editable = tuple(os.path.join(folder, "") for place in places for folder in _editable(place)) if listed else ()
    return tuple(sorted(folder for folder in listed if not folder.startswith(editable)))


def _listed(place: Path) -> Iterator[str]:
    for file in sorted(place.glob("*.pth")):
        with suppress(OSError, UnicodeDecodeError):
            for line in file.read_text(encoding="utf-8").splitlines():
                folder = place / line.strip()
                if line.strip() and not line.startswith(("#", "import ", "import\t")) and folder.is_dir():
                    yield os.path.join(folder.resolve(), "")


def _editable(place: Path) -> Iterator[str]:
    """Yield the folders of editable packages, which their ``direct_url.json`` names (PEP 610)."""
    for file in place.glob("*.dist-info/direct_url.json"):
        with suppress(OSError, ValueError, AttributeError):
            origin = json.loads(file.read_text(encoding="utf-8"))
            if origin.get("dir_info", {}).get("editable"):
                yield str(Path(unquote(urlsplit(origin["url"]).path)).resolve())
