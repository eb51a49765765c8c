"""From a table to lines that can be drawn: one x, a mean over ranks with its range, few enough points."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Floats = np.ndarray[Any, np.dtype[np.float64]]
MOST_POINTS: Final = 3000
"""Points of a line; more are narrower than a pixel, and make a PDF or SVG that cannot be opened."""
SMOOTH_FROM: Final = 24
"""Records from which a moving average is drawn unasked."""


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """One column of one run over x; ``low`` and ``high`` are the range over its ranks, None for one rank."""

    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None

    def thin(self, most: int = MOST_POINTS) -> Series:
        """Return at most so many points, those that make each bin's range: no spike is lost."""
        if len(self.x) <= most:
            return self
        bins = np.linspace(0, len(self.x), most // 2 + 1).astype(int)
        kept: list[int] = []
        for start, end in pairwise(bins):
            part = self.y[start:end]
            kept += sorted({start + int(np.nanargmin(part)), start + int(np.nanargmax(part))})
        at = np.asarray(kept)
        return Series(self.x[at], self.y[at], *(None if band is None else band[at] for band in (self.low, self.high)))

    def smooth(self, window: int) -> Series:
        """Return the moving average over so many records, centred; at the ends over those that are there."""
        import pandas as pd

        return Series(self.x, pd.Series(self.y).rolling(window, min_periods=1, center=True).mean().to_numpy())


def series(run: pd.DataFrame, x: str, name: str) -> Series | None:
    """Return a column of one run, the mean over its ranks; None where fewer than one value is finite."""
    if name not in run or x not in run:
        return None
    known = run[[x, name]].replace([np.inf, -np.inf], np.nan).dropna()
    if known.empty:
        return None
    if "rank" in run and run["rank"].nunique() > 1:
        each = known.groupby(x)[name].agg(["mean", "min", "max"])
        columns = (each[column].to_numpy(dtype=np.float64) for column in ("mean", "min", "max"))
        return Series(each.index.to_numpy(dtype=np.float64), *columns)
    known = known.sort_values(x, kind="stable") if not known[x].is_monotonic_increasing else known
    return Series(known[x].to_numpy(dtype=np.float64), known[name].to_numpy(dtype=np.float64))


def window_for(count: int, asked: int | None) -> int:
    """Return the records that a moving average is over: as asked, else a hundredth, five at least; 1 for none."""
    if asked is not None:
        return max(asked, 1)
    return max(5, count // 100) if count >= SMOOTH_FROM else 1
