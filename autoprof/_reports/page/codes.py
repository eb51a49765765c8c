"""Durations as 16-bit codes on a logarithmic scale: a tenth of their size as text, within 0.03 %."""

from __future__ import annotations

import base64
from typing import Final

import numpy as np
import numpy.typing as npt

from ...frame import Nanoseconds

Codes = npt.NDArray[np.uint16]

MISSING: Final = 0
"""The code of a row that did not occur in a step; it is less than all others."""
ZERO: Final = 1
FIRST: Final = 2
"""The code of one nanosecond."""
PER_NAT: Final = 2000
"""Codes in a factor of e: neighbours differ by 0.05 %, and the last code is two days."""
_LAST: Final = 65535


def encode(ns: Nanoseconds) -> Codes:
    """Return the codes of durations; a negative one is coded as zero."""
    positions = FIRST + np.rint(PER_NAT * np.log(np.maximum(ns, 1)))
    codes: Codes = np.where(ns > 0, np.minimum(positions, _LAST), ZERO).astype(np.uint16)
    return codes


def as_text(codes: Codes) -> str:
    """Return codes as base64 of little-endian 16-bit numbers."""
    return base64.b64encode(np.ascontiguousarray(codes, dtype="<u2").tobytes()).decode("ascii")
