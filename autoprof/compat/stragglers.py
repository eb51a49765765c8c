"""Compare the ranks of a run by name, and report those that clearly take longer than the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from .._core.units import format_ms
from .._ranks import median_of_others
from .._reports.text import fit, safe

MIN_RATIO: Final = 1.1
"""A straggler's mean is at least this many times the median of the other ranks' means: equal work varies less."""
MIN_EXCESS_NS: Final = 100_000
"""A straggler's mean also exceeds that median by at least this: shorter times vary more than by a tenth."""


class RankTime(NamedTuple):
    """The calls of one name on one rank."""

    calls: int
    mean_ns: float
    max_ns: float


@dataclass(frozen=True, slots=True)
class NameByRank:
    """One name on all ranks; ``others_ns`` is the median of the other ranks' means, None for a single rank."""

    name: str
    ranks: Mapping[int, RankTime]
    slowest: int
    others_ns: float | None

    @property
    def mean_ns(self) -> float:
        """The mean over all calls on all ranks."""
        return sum(one.calls * one.mean_ns for one in self.ranks.values()) / sum(
            one.calls for one in self.ranks.values()
        )

    @property
    def excess_ns(self) -> float:
        """The mean of the slowest rank above the median of the other ranks' means."""
        return 0.0 if self.others_ns is None else self.ranks[self.slowest].mean_ns - self.others_ns

    @property
    def straggles(self) -> bool:
        """Whether the slowest rank is clearly slower than the others."""
        if self.others_ns is None:
            return False
        return self.excess_ns >= MIN_EXCESS_NS and self.ranks[self.slowest].mean_ns >= MIN_RATIO * self.others_ns


def by_rank(times: Iterable[tuple[int, str, float]]) -> list[NameByRank]:
    """Compare times (rank, name, nanoseconds); return the names in descending order of the slowest rank's excess.

    In a collective the ranks that take long wait for the straggler, which takes the shortest time. So only the names
    of work that each rank does without the others show stragglers.
    """
    sums: dict[str, dict[int, list[float]]] = {}
    for rank, name, ns in times:
        sums_of_rank = sums.setdefault(name, {}).setdefault(rank, [0, 0.0, 0.0])
        sums_of_rank[0] += 1
        sums_of_rank[1] += ns
        sums_of_rank[2] = max(sums_of_rank[2], ns)
    found = []
    for name, by in sums.items():
        ranks = {rank: RankTime(int(n), total / n, most) for rank, (n, total, most) in sorted(by.items())}
        means = np.array([one.mean_ns for one in ranks.values()])
        others = median_of_others(means) if len(ranks) > 1 else means
        at = int((means - others).argmax())
        found.append(NameByRank(name, ranks, list(ranks)[at], float(others[at]) if len(ranks) > 1 else None))
    return sorted(found, key=lambda one: (-one.excess_ns, -one.mean_ns, one.name))


def render_stragglers(names: Iterable[NameByRank], width: int = 80) -> list[str]:
    """Return a table of the names, then a line for each straggler; no line is wider than ``width`` cells."""
    columns = f"{'mean, all':>12}{'slowest':>9}{'its mean':>12}{'its max':>12}{'others':>12}{'longer':>9}"
    listed = list(names)
    name_width = max(width - len(columns), 12)
    lines = [fit("name", name_width) + columns]
    for one in listed:
        slow = one.ranks[one.slowest]
        others = "-" if one.others_ns is None else format_ms(one.others_ns)
        longer = "-" if not one.others_ns else f"{100 * one.excess_ns / one.others_ns:+.1f} %"
        lines.append(
            fit(safe(one.name), name_width)
            + f"{format_ms(one.mean_ns):>12}{f'rank {one.slowest}':>9}{format_ms(slow.mean_ns):>12}"
            + f"{format_ms(slow.max_ns):>12}{others:>12}{longer:>9}"
        )
    found = [f"straggler: {describe_straggler(one)}" for one in listed if one.straggles]
    return [*lines, "", *(found or ["no straggler"])]


def describe_straggler(one: NameByRank) -> str:
    """Return the sentence that names the slow rank, the name and the excess."""
    assert one.others_ns is not None
    longer = f"{100 * one.excess_ns / one.others_ns:.0f} %" if one.others_ns else format_ms(one.excess_ns)
    return f"rank {one.slowest} takes {longer} longer in {safe(one.name)} than the other ranks"
