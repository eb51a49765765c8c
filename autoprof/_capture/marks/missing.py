"""The reason for a missing extension in C, and its remedy."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final, NamedTuple

NEWEST_PYTHON: Final = (3, 15)
"""The newest Python that the extension was built with; pyproject.toml has its classifier."""
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
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Missing("needs the GIL, and this Python is a free-threaded build", f"use the ordinary build of {python}")
    if os.name == "nt":
        return Missing("is not built on Windows", "use Linux, macOS, or Linux under Windows (WSL 2)")
    if loaded:
        return Missing("was built from other sources", AGAIN)
    builds = sorted(path.name for path in folder.glob("_c.*") if path.suffix in (".so", ".pyd"))
    if {f"_c{suffix}" for suffix in EXTENSION_SUFFIXES} & {*builds}:
        return Missing(f"cannot be loaded ({error})", AGAIN)
    if builds:
        return Missing(f"was built for another Python ({builds[0]})", AGAIN)
    if sys.version_info[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        return Missing(f"was not built: {python} is newer than those that were tried", f"use Python 3.10 to {newest}")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return Missing(f"was not built: there is no {header}", f"install the headers of {python}, then {AGAIN}")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return Missing(f"was not built: there is no C compiler ({compiler})", f"install one, then {AGAIN}")
    return Missing("was not built", f"{AGAIN}; `pip install -v` shows the compiler's messages")
