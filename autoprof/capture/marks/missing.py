"""The reason for a missing extension in C, and its remedy."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final, NamedTuple

AGAIN: Final = "install torch-autoprof again (in a clone: python setup.py build_ext --inplace)"


class Missing(NamedTuple):
    """``reason`` follows the words "autoprof's extension in C"; ``remedy`` is an order."""

    reason: str
    remedy: str


def why_missing(*, loaded: bool, error: str = "", folder: Path = Path(__file__).parent) -> Missing:
    """Return the reason and the remedy.

    ``loaded`` says whether a build was found that is of other sources, ``error`` why one could not be loaded, and
    ``folder`` has the builds.
    """
    if loaded:
        return Missing("was built from other sources", AGAIN)
    builds = sorted(path.name for path in folder.glob("_c.*") if path.suffix in (".so", ".pyd"))
    if {f"_c{suffix}" for suffix in EXTENSION_SUFFIXES} & {*builds}:
        return Missing(f"cannot be loaded ({error})", AGAIN)
    if builds:
        return Missing(f"was built for another Python ({builds[0]})", AGAIN)
    needed = "a C compiler and the headers of this Python"
    return Missing("was not built", f"{AGAIN}; it needs {needed}, and `pip install -v` shows the compiler's messages")
