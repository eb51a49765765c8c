"""The memory readings of a run in bounded space, whatever the number of steps."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

import numpy as np

from .._reports.memory import MemoryHistory, NameMemory
from ..frame import NOT_MEASURED

POINTS: Final = 2048
"""Points kept: more than a picture has pixels for. 2048 of 5 series are 80 KB."""
SERIES: Final = 16
"""Kinds of readings kept; a run has two to four."""


class History:
    """Keep a point for every ``stride`` steps, the largest reading of each kind; a full history doubles its stride."""

    __slots__ = ("_in_point", "_series", "_steps", "stride")

    def __init__(self) -> None:
        self.stride = 1
        self._in_point = 0
        self._steps = array("q")
        self._series: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, readings: Mapping[str, int]) -> None:
        """Take the readings of one step."""
        if not self._in_point:
            if len(self._steps) == POINTS:
                self._halve()
            self._steps.append(step)
            for column in self._series.values():
                column.append(NOT_MEASURED)
        self._steps[-1] = step
        for key, value in readings.items():
            column = self._series.get(key) or self._begin(key)
            if value > column[-1]:
                column[-1] = value
        self._in_point = (self._in_point + 1) % self.stride

    def _begin(self, key: str) -> array[int]:
        column = array("q", [NOT_MEASURED]) * len(self._steps)
        if len(self._series) < SERIES:
            self._series[key] = column
        return column

    def _halve(self) -> None:
        """Merge neighbours, keeping the larger reading and the later step."""
        self._steps = self._steps[1::2]
        for key, column in self._series.items():
            values = np.frombuffer(column, dtype=np.int64)
            self._series[key] = array("q", np.maximum(values[::2], values[1::2]).tobytes())
        self.stride *= 2

    def snapshot(self, names: tuple[NameMemory, ...] = ()) -> MemoryHistory:
        """Return a copy that no longer changes."""
        return MemoryHistory(
            steps=np.array(self._steps, dtype=np.int64),
            series={key: np.array(column, dtype=np.int64) for key, column in self._series.items()},
            names=names,
            stride=self.stride,
        )
