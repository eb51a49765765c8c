"""Series over the steps in bins of equally many recorded steps: median, 95th percentile and maximum of each bin."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from ...frame import Nanoseconds
from .codes import MISSING, Codes, encode

SAMPLES: Final = 512
"""Steps of a bin whose codes are kept for its quantiles; of a longer bin, evenly spaced ones. The maximum is of all."""
QUANTILES: Final = (0.5, 0.95)


@dataclass(frozen=True, eq=False, slots=True)
class BinnedSeries:
    """Bins in order: the first and last step of each, and for each bin × series ``p50``, ``p95`` and ``most``."""

    stride: int
    first: tuple[int, ...]
    last: tuple[int, ...]
    p50: Codes
    p95: Codes
    most: Codes


class QuantileBins:
    """Collect codes of many series, a bin for each ``stride`` steps, in memory that does not grow with the steps.

    Series may be added during the run: a shorter vector of codes lacks the last ones.
    """

    def __init__(self, stride: int) -> None:
        self.stride = max(stride, 1)
        self._every = ceil(self.stride / SAMPLES)
        self._count = self._kept = 0
        self._samples: Codes = np.zeros((min(self.stride, SAMPLES), 16), dtype=np.uint16)
        self._most: Codes = np.zeros(16, dtype=np.uint16)
        self._first: list[int] = []
        self._last: list[int] = []
        self._bins: list[tuple[Codes, Codes, Codes]] = []

    def add(self, step: int, codes: Codes) -> None:
        """Add the codes of one step."""
        width = len(codes)
        if width > len(self._most):
            self._widen(2 * width)
        if not self._count:
            self._first.append(step)
            self._last.append(step)
        self._last[-1] = step
        np.maximum(self._most[:width], codes, out=self._most[:width])
        if self._count % self._every == 0:
            self._samples[self._kept, :width] = codes
            self._samples[self._kept, width:] = MISSING
            self._kept += 1
        self._count += 1
        if self._count == self.stride:
            self._flush()

    def _widen(self, width: int) -> None:
        samples = np.zeros((len(self._samples), width), dtype=np.uint16)
        samples[:, : self._samples.shape[1]] = self._samples
        self._samples = samples
        self._most = np.concatenate([self._most, np.zeros(width - len(self._most), dtype=np.uint16)])

    def _flush(self) -> None:
        if self._kept == 1:
            p50 = p95 = self._samples[0].copy()
        else:
            ordered = np.sort(self._samples[: self._kept], axis=0, kind="stable")  # a radix sort for 16 bits
            present = (ordered != MISSING).sum(axis=0)
            p50, p95 = (_quantile(ordered, present, q) for q in QUANTILES)
        self._bins.append((p50, p95, self._most.copy()))
        self._most[:] = MISSING
        self._count = self._kept = 0

    def result(self, columns: int) -> BinnedSeries:
        """Return all bins for the first ``columns`` series."""
        if self._count:
            self._flush()
        parts = [np.zeros((len(self._bins), columns), dtype=np.uint16) for _ in range(3)]
        for at, one in enumerate(self._bins):
            for part, codes in zip(parts, one, strict=True):
                part[at, : len(codes)] = codes[:columns]
        p50, p95, most = parts
        return BinnedSeries(self.stride, tuple(self._first), tuple(self._last), p50, p95, most)


def _quantile(ordered: Codes, present: Nanoseconds, q: float) -> Codes:
    """Return the quantile of each column, without the missing entries, which are sorted first."""
    rank = np.maximum(np.ceil(q * present).astype(np.int64), 1) - 1
    at = np.minimum(len(ordered) - present + rank, len(ordered) - 1)
    found: Codes = np.take_along_axis(ordered, at[None], axis=0)[0]
    return found


class MeanBins:
    """Collect the means of a few durations, a bin for each ``stride`` steps."""

    def __init__(self, stride: int) -> None:
        self._stride = max(stride, 1)
        self._count = 0
        self._sums: dict[str, int] = {}
        self._bins: list[dict[str, float]] = []

    def add(self, values: dict[str, int]) -> None:
        """Add the values of one step; a missing one is zero."""
        for key, value in values.items():
            self._sums[key] = self._sums.get(key, 0) + value
        self._count += 1
        if self._count == self._stride:
            self._flush()

    def _flush(self) -> None:
        self._bins.append({key: value / self._count for key, value in self._sums.items()})
        self._sums, self._count = {}, 0

    def result(self) -> dict[str, Codes]:
        """Return the codes of each duration's means."""
        if self._count:
            self._flush()
        keys = dict.fromkeys(key for one in self._bins for key in one)
        return {key: encode(np.array([round(one.get(key, 0.0)) for one in self._bins], dtype=np.int64)) for key in keys}
