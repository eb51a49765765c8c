"""Which rank is slow at what: times by name and rank, and the rank that the others wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from .._reports.text import fit, safe
from .._units import format_ms

STRAGGLES: Final = 1.1
"""A rank whose mean is so many times the median of the others' means is slow: ranks doing equal work differ by less."""
LEAST_NS: Final = 100_000
"""And by how much more: what takes microseconds differs by its scatter alone."""
_COLUMNS: Final = f"{'mean, all':>12}{'slowest':>9}{'its mean':>12}{'its max':>12}{'others':>12}{'longer':>9}"


class RankTime(NamedTuple):
    """One name's occurrences on one rank."""

    calls: int
    mean_ns: float
    max_ns: float


@dataclass(frozen=True, slots=True)
class NameByRank:
    """One name on all ranks. ``others_ns`` is the median of the other ranks' means; None where there is no other."""

    name: str
    ranks: Mapping[int, RankTime]
    slowest: int
    others_ns: float | None

    @property
    def mean_ns(self) -> float:
        """The mean over all occurrences."""
        return sum(one.calls * one.mean_ns for one in self.ranks.values()) / sum(
            one.calls for one in self.ranks.values()
        )

    @property
    def excess_ns(self) -> float:
        """How much longer the slowest rank takes than the others, on average."""
        return 0.0 if self.others_ns is None else self.ranks[self.slowest].mean_ns - self.others_ns

    @property
    def straggles(self) -> bool:
        """Whether the slowest rank clearly is slower than the others."""
        if self.others_ns is None:
            return False
        return self.excess_ns >= LEAST_NS and self.ranks[self.slowest].mean_ns >= STRAGGLES * self.others_ns


def by_rank(times: Iterable[tuple[int, str, float]]) -> list[NameByRank]:
    """Gather times (rank, name, nanoseconds); names in descending order of what the slowest rank costs.

    A rank that takes long where all ranks meet (a collective) is not the slow one but waits for it: there the rank with
    the shortest time is late. Only the names of work that each rank does alone tell who straggles.
    """
    sums: dict[str, dict[int, list[float]]] = {}
    for rank, name, ns in times:
        held = sums.setdefault(name, {}).setdefault(rank, [0, 0.0, 0.0])
        held[0] += 1
        held[1] += ns
        held[2] = max(held[2], ns)
    found = []
    for name, by in sums.items():
        ranks = {rank: RankTime(int(n), total / n, most) for rank, (n, total, most) in sorted(by.items())}
        slowest = max(ranks, key=lambda rank: ranks[rank].mean_ns)
        others = [one.mean_ns for rank, one in ranks.items() if rank != slowest]
        found.append(NameByRank(name, ranks, slowest, median(others) if others else None))
    return sorted(found, key=lambda one: (-one.excess_ns, -one.mean_ns, one.name))


def render_stragglers(names: Iterable[NameByRank], width: int = 80) -> list[str]:
    """Return a table of the names, then a line for each rank that straggles; no line wider than ``width`` cells."""
    listed = list(names)
    room = max(width - len(_COLUMNS), 12)
    lines = [fit("name", room) + _COLUMNS]
    for one in listed:
        slow = one.ranks[one.slowest]
        others = "-" if one.others_ns is None else format_ms(one.others_ns)
        longer = "-" if not one.others_ns else f"{100 * one.excess_ns / one.others_ns:+.1f} %"
        lines.append(
            fit(safe(one.name), room)
            + f"{format_ms(one.mean_ns):>12}{f'rank {one.slowest}':>9}{format_ms(slow.mean_ns):>12}"
            + f"{format_ms(slow.max_ns):>12}{others:>12}{longer:>9}"
        )
    slow_ones = [one for one in listed if one.straggles]
    lines += ["", *(f"straggler: {straggler_line(one)}" for one in slow_ones)] if slow_ones else []
    return lines if slow_ones else [*lines, "", "no rank straggles"]


def straggler_line(one: NameByRank) -> str:
    """Phrase who is slow at what, and by how much."""
    assert one.others_ns is not None
    longer = f"{100 * one.excess_ns / one.others_ns:.0f} %" if one.others_ns else format_ms(one.excess_ns)
    return f"rank {one.slowest} takes {longer} longer in {safe(one.name)} than the other ranks"
