"""Pairs of a row of A and a row of B: by name, or by the modules of that name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .series import PairKey, RunSeries

ModulesByRow = Mapping[PairKey, frozenset[str]]


@dataclass(frozen=True, slots=True)
class RowPairs:
    """``both`` has pairs of A's and B's key; ``only_a`` and ``only_b`` are the unpaired rows of one side.

    ``regrouped`` is as in ``Comparison``.
    """

    both: tuple[tuple[PairKey, PairKey], ...] = ()
    only_a: tuple[PairKey, ...] = ()
    only_b: tuple[PairKey, ...] = ()
    regrouped: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)


def modules_by_row(runs: Sequence[RunSeries]) -> dict[PairKey, frozenset[str]]:
    """Return the rows of all runs of one side, each with the fqns of its modules."""
    found: dict[PairKey, frozenset[str]] = {}
    for run in runs:
        for rank in run.ranks:
            for key, fqns in rank.fqns.items():
                found[key] = found.get(key, frozenset()) | fqns
    return found


def pair_rows(a: ModulesByRow, b: ModulesByRow) -> RowPairs:
    """Pair the rows of two sides. A row whose modules have another name in B is the same row, renamed."""
    only_a = [key for key in a if key not in b]
    only_b = [key for key in b if key not in a]
    both = [(key, key) for key in a if key in b]
    renamed_a, renamed_b = _by_modules(only_a, a), _by_modules(only_b, b)
    for modules, old in renamed_a.items():
        new = renamed_b.get(modules, [])
        if len(old) == len(new) == 1:
            both.append((old[0], new[0]))
            only_a.remove(old[0])
            only_b.remove(new[0])
    regrouped = {
        key.name: (tuple(sorted(a[key] - b[key])), tuple(sorted(b[key] - a[key])))
        for key in a
        if key in b and a[key] != b[key]
    }
    return RowPairs(tuple(both), tuple(only_a), tuple(only_b), regrouped)


def _by_modules(keys: Iterable[PairKey], modules: ModulesByRow) -> dict[tuple[frozenset[str], str, str], list[PairKey]]:
    found: dict[tuple[frozenset[str], str, str], list[PairKey]] = {}
    for key in keys:
        if modules[key]:
            found.setdefault((modules[key], key.phase, key.place), []).append(key)
    return found
