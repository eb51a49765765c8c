"""Whether marks are recorded by the extension in C or in Python."""

from __future__ import annotations

import os
from typing import Any, Final

try:
    from . import _c
except ImportError:  # installed without a compiler, or an interpreter without the GIL
    _c = None  # type: ignore[assignment]

ABI_VERSION: Final = 1
"""Version of the interface between C and Python; a build of another version is not used."""
extension: Any = _c if getattr(_c, "ABI_VERSION", None) == ABI_VERSION else None
"""The extension in C, or None."""
PURE_VARIABLE: Final = "AUTOPROF_PURE"
"""Environment variable that, when not empty, switches the extension off."""


def uses_extension() -> bool:
    """Tell whether new recorders use the extension."""
    return extension is not None and not os.environ.get(PURE_VARIABLE)
