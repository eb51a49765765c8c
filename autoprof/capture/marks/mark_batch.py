"""The marks of one step, taken out of the recorder's buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ...base.frame import Nanoseconds

INTEGER_BYTES: Final = 8
"""Size of an integer in a buffer in C."""


class MarkBatch(NamedTuple):
    """The marks of one step, and how many the limit of the buffer dropped.

    ``raw_codes`` are 64-bit integers, the same object for equal steps; ``raw_readings`` too, or a list of a device's
    events. They become arrays when steps are resolved, several at a time: with cold caches that took half of a step's
    end.
    ``thread`` is the training thread; with ``multithreaded``, THREAD marks name the threads of other marks.
    ``skipped`` counts marks of module calls on other threads, which are not recorded.
    """

    raw_codes: bytes
    raw_readings: bytes | memoryview | list[Any]
    thread: int
    multithreaded: bool
    dropped: int
    skipped: int = 0

    @property
    def mark_count(self) -> int:
        """The number of marks."""
        return len(self.raw_codes) // INTEGER_BYTES

    def up_to(self, count: int) -> MarkBatch:
        """Return the first ``count`` marks."""
        readings = self.raw_readings
        return self._replace(
            raw_codes=self.raw_codes[: count * INTEGER_BYTES],
            raw_readings=readings[: count if isinstance(readings, list) else count * INTEGER_BYTES],
        )

    @property
    def code_array(self) -> Nanoseconds:
        """The code of each mark as an array."""
        return np.frombuffer(self.raw_codes, np.int64)

    @property
    def codes(self) -> list[int]:
        """The code of each mark."""
        codes: list[int] = self.code_array.tolist()
        return codes

    @property
    def readings(self) -> list[Any]:
        """The reading of each mark."""
        raw = self.raw_readings
        return raw if isinstance(raw, list) else np.frombuffer(raw, np.int64).tolist()

    @staticmethod
    def matrix(steps: Sequence[MarkBatch]) -> Nanoseconds:
        """Return the integer readings of steps with equally many marks as an array (steps, marks).

        Raises ``OverflowError`` for a reading that needs more than 64 bits.
        """
        shape = len(steps), steps[0].mark_count
        raw = [step.raw_readings for step in steps if not isinstance(step.raw_readings, list)]
        if len(raw) == len(steps):
            return np.frombuffer(b"".join(raw), np.int64).reshape(shape)
        return np.array([step.readings for step in steps], dtype=np.int64).reshape(shape)
