"""The data of a figure: the runs of a table, and each column of a run as a line of limited points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .fields import FIELDS, meaning_of

if TYPE_CHECKING:
    import pandas as pd

Floats = np.ndarray[Any, np.dtype[np.float64]]
MAX_POINTS: Final = 3000
"""Points of a line. More are narrower than a pixel, and make an SVG or PDF too large to open."""
MIN_RECORDS_TO_SMOOTH: Final = 24
"""Records from which on a moving average is drawn by default."""
COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c564b", "#7f7f7f", "#b2a900")
RATES: Final = {"throughput": "samples/s", "tokens_per_s": "tokens/s"}


TIMER_SUFFIX: Final = " (ms)"
"""The end of a name of a timing log's column."""


def unknown_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns of numbers whose names are not known, without empty ones.

    A second key of a known column (``learning_rate`` beside ``lr``) has a known name.
    """
    names = [str(name) for name in table.select_dtypes("number") if name not in FIELDS and name != "rank"]
    names = [name for name in names if not name.startswith("gpu_util_") and np.isfinite(table[name]).any()]
    meanings = {name: meaning_of(name) for name in names}
    return [name for name, meaning in meanings.items() if meaning is None or meaning.field not in table]


def is_constant(values: pd.Series) -> bool:
    """Return whether the finite values of a column are all the same."""
    known = values[np.isfinite(values)]
    return not len(known) or bool((known == known.iloc[0]).all())


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """One column of one run over x; ``low`` and ``high`` are the range over its ranks, None for one rank."""

    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None

    def thin(self, most: int = MAX_POINTS) -> Series:
        """Return at most ``most`` points: the minimum and maximum of each bin, so that no spike is lost."""
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
        """Return the centred moving average over ``window`` records; fewer at the ends."""
        import pandas as pd

        return Series(self.x, pd.Series(self.y).rolling(window, min_periods=1, center=True).mean().to_numpy())

    def divide_x(self, divisor: float) -> Series:
        """Return the series with x divided by ``divisor``."""
        return Series(self.x / divisor, self.y, self.low, self.high)

    def scale_y(self, factor: float) -> Series:
        """Return the series with y and its range multiplied by ``factor``."""
        return Series(
            self.x, self.y * factor, *(None if band is None else band * factor for band in (self.low, self.high))
        )


def column_of_run(run: pd.DataFrame, x: str, name: str) -> Series | None:
    """Return the finite values of a column of one run, the mean over its ranks; None if there are none."""
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


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a figure and the settings that all its plots share."""

    tables: Mapping[str, pd.DataFrame]
    """The table of each run, by its name."""
    x: str
    """The column on the x axis."""
    x_label: str
    x_unit: float = 1.0
    """The unit of the x axis in the unit of the column, as 60 for minutes."""
    window: int | None = None
    """Records of the moving average, 1 for none; None: a hundredth of the records."""
    show: Callable[[str], str] = str
    """Returns a name with the characters that no font has spelt out."""
    notes: list[str] = field(default_factory=list)
    """Sentences below the figure; the plots add theirs."""

    def color(self, run: str) -> str:
        """Return the colour of a run, the same in every plot."""
        return COLORS[list(self.tables).index(run) % len(COLORS)]

    def has(self, name: str) -> bool:
        """Return whether a run has a finite value of a column."""
        return any(name in table and bool(np.isfinite(table[name]).any()) for table in self.tables.values())

    def varies(self, name: str) -> bool:
        """Return whether a column of a run has two different values."""
        return any(name in table and not is_constant(table[name]) for table in self.tables.values())

    def has_positive(self, name: str) -> bool:
        """Return whether a run has a value of a column above zero."""
        return self.has(name) and any(name in table and bool((table[name] > 0).any()) for table in self.tables.values())

    def series(self, run: str, name: str, values: pd.Series | None = None) -> Series | None:
        """Return a column of a run, or other ``values`` for its records, over the x axis of the figure."""
        table = self.tables[run]
        found = column_of_run(table if values is None else table.assign(**{name: values}), self.x, name)
        return None if found is None else found.divide_x(self.x_unit)

    def lines(self, name: str) -> list[tuple[str, Series]]:
        """Return a column of every run that has it."""
        found = ((run, self.series(run, name)) for run in self.tables)
        return [(run, line) for run, line in found if line is not None]

    @property
    def rate(self) -> str:
        """The column of the throughput: samples if logged, else tokens."""
        return next((name for name in RATES if self.has(name)), "throughput")

    def window_for(self, count: int) -> int:
        """Return the window of the moving average for so many records: as set, else a hundredth, at least 5."""
        if self.window is not None:
            return max(self.window, 1)
        return max(5, count // 100) if count >= MIN_RECORDS_TO_SMOOTH else 1
