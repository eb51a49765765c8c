"""Compare the ranks of a run by name, and report those that clearly take longer than the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from .._core.units import format_ms
from .._ranks import median_of_others
from .._reports.text import fit, safe

MIN_RATIO: Final = 1.1
"""A straggler's mean is at least this many times the median of the other ranks' means: equal work varies less."""
MIN_EXCESS_NS: Final = 100_000
"""A straggler's mean also exceeds that median by at least this: shorter times vary more than by a tenth."""


class NameByRank(NamedTuple):
    """One name on all ranks; ``others_ns`` is the median of the other ranks' means, None for a single rank."""

    name: str
    means_ns: Mapping[int, float]
    slowest: int
    others_ns: float | None

    @property
    def excess_ns(self) -> float:
        """The mean of the slowest rank above the median of the other ranks' means."""
        return 0.0 if self.others_ns is None else self.means_ns[self.slowest] - self.others_ns

    @property
    def straggles(self) -> bool:
        """Whether the slowest rank is clearly slower than the others."""
        if self.others_ns is None:
            return False
        return self.excess_ns >= max(MIN_EXCESS_NS, (MIN_RATIO - 1) * self.others_ns)


def compare_name(name: str, means_ns: Mapping[int, float]) -> NameByRank:
    """Find the slowest rank of one name."""
    means = np.array([*means_ns.values()])
    others = median_of_others(means) if len(means) > 1 else means
    at = int((means - others).argmax())
    return NameByRank(name, means_ns, [*means_ns][at], float(others[at]) if len(means) > 1 else None)


def render_stragglers(names: Iterable[NameByRank], width: int = 80) -> list[str]:
    """Return a table of the names, then a line for each straggler; no line is wider than ``width`` cells."""
    columns = f"{'slowest':>9}{'its mean':>12}{'others':>12}{'longer':>9}"
    listed = list(names)
    name_width = max(width - len(columns), 12)
    lines = [fit("name", name_width) + columns]
    for one in listed:
        others = "-" if one.others_ns is None else format_ms(one.others_ns)
        cells = f"{f'rank {one.slowest}':>9}{format_ms(one.means_ns[one.slowest]):>12}{others:>12}{_longer(one):>9}"
        lines.append(fit(safe(one.name), name_width) + cells)
    found = [
        f"straggler: rank {one.slowest} takes {_longer(one)} longer in {safe(one.name)} than the other ranks"
        for one in listed
        if one.straggles
    ]
    return [*lines, "", *(found or ["no straggler"])]


def _longer(one: NameByRank) -> str:
    return f"{100 * one.excess_ns / one.others_ns:.0f} %" if one.others_ns else "-"
