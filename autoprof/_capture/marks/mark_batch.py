"""A step's marks as they come out of the buffer, and whether that is one of C."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ...frame import Nanoseconds, ShapeChange

try:
    from . import _c
except ImportError:  # no compiler where autoprof was installed, or an interpreter without a lock
    _c = None  # type: ignore[assignment]

EDITION: Final = 1
"""Of what C and Python have in common; a build that is left over from another one is not used."""
extension: Any = _c if getattr(_c, "EDITION", None) == EDITION else None
"""The extension in C, or None."""
PURE: Final = "AUTOPROF_PURE"
"""The variable of the environment that has marks made in Python throughout."""
BYTES: Final = 8
"""Of an integer in a ``Tape``."""


class Taken(NamedTuple):
    """A step's marks: codes and readings, whose they are where no thread is named, if one is, how many were dropped.

    ``kept`` and ``values`` are codes and readings as the buffer had them: 64-bit integers in bytes, or lists. They
    become arrays where steps are resolved, several at a time: with cold caches that took half of a step's end.
    """

    kept: bytes | list[int]
    values: bytes | list[Any]
    thread: int
    mixed: bool
    dropped: int
    shapes: tuple[ShapeChange, ...] = ()
    detail_ns: int = 0

    @property
    def marks(self) -> int:
        """How many marks there are."""
        return len(self.kept) // BYTES if isinstance(self.kept, bytes) else len(self.kept)

    @property
    def key(self) -> Hashable:
        """What equal codes have in common."""
        return self.kept if isinstance(self.kept, bytes) else tuple(self.kept)

    @property
    def codes(self) -> list[int]:
        """The codes, one a mark."""
        return _listed(self.kept)

    @property
    def readings(self) -> list[Any]:
        """The readings, one a mark."""
        return _listed(self.values)

    @staticmethod
    def matrix(steps: Sequence[Taken]) -> Nanoseconds:
        """Return the readings of steps with as many marks each, a row a step, where they are integers."""
        shape = len(steps), steps[0].marks
        kept = [step.values for step in steps if isinstance(step.values, bytes)]
        if len(kept) == len(steps):
            return np.frombuffer(b"".join(kept), np.int64).reshape(shape)
        return np.array([step.readings for step in steps], dtype=np.int64).reshape(shape)


def _listed(kept: bytes | list[Any]) -> list[Any]:
    found: list[Any] = np.frombuffer(kept, np.int64).tolist() if isinstance(kept, bytes) else kept
    return found


def in_c() -> bool:
    """Tell whether marks are made in C."""
    return extension is not None and not os.environ.get(PURE)
