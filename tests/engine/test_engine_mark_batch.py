"""The marks of a step, taken out of a buffer: bytes, memory or lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoprof._capture.marks.mark_batch import MarkBatch

CODES = np.arange(4, dtype=np.int64).tobytes()


@pytest.mark.parametrize("codes", [CODES, [0, 1, 2, 3]], ids=["codes in C", "codes in Python"])
@pytest.mark.parametrize("readings", [memoryview(CODES), [0, 1, 2, 3]], ids=["host clock in C", "events"])
def test_the_first_marks_keep_as_many_codes_as_readings(codes: Any, readings: Any) -> None:
    """On a device the buffer in C has codes as bytes and readings as a list of events."""
    batch = MarkBatch(codes, readings, thread=0, multithreaded=False, dropped=0).up_to(2)
    assert (batch.codes, batch.readings, batch.mark_count) == ([0, 1], [0, 1], 2)
