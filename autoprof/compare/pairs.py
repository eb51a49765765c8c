"""Which row of A is which of B: by name, else by the modules that it stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .series import Key, RunSeries


@dataclass(slots=True)
class Side:
    """The rows of all runs of one side, and the modules that they stand for."""

    runs: Sequence[RunSeries]
    fqns: dict[Key, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for run in self.runs:
            for rank in run.ranks:
                for key, fqns in rank.fqns.items():
                    self.fqns[key] = self.fqns.get(key, frozenset()) | fqns


@dataclass(frozen=True, slots=True)
class Pairs:
    """``both`` has (A's key, B's key); the others are what one side has alone."""

    both: tuple[tuple[Key, Key], ...]
    only_a: tuple[Key, ...]
    only_b: tuple[Key, ...]
    regrouped: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]


def pair(a: Side, b: Side) -> Pairs:
    """Pair the rows of two sides. A row whose modules have another name in B is the same row, renamed."""
    only_a = [key for key in a.fqns if key not in b.fqns]
    only_b = [key for key in b.fqns if key not in a.fqns]
    both = [(key, key) for key in a.fqns if key in b.fqns]
    by_modules_a, by_modules_b = _by_modules(only_a, a), _by_modules(only_b, b)
    for modules, old in by_modules_a.items():
        new = by_modules_b.get(modules, [])
        if len(old) == len(new) == 1:
            both.append((old[0], new[0]))
            only_a.remove(old[0])
            only_b.remove(new[0])
    regrouped = {
        key.name: (tuple(sorted(a.fqns[key] - b.fqns[key])), tuple(sorted(b.fqns[key] - a.fqns[key])))
        for key in a.fqns
        if key in b.fqns and a.fqns[key] != b.fqns[key]
    }
    return Pairs(tuple(both), tuple(only_a), tuple(only_b), regrouped)


def _by_modules(keys: Iterable[Key], side: Side) -> dict[tuple[frozenset[str], str, str], list[Key]]:
    found: dict[tuple[frozenset[str], str, str], list[Key]] = {}
    for key in keys:
        if side.fqns[key]:
            found.setdefault((side.fqns[key], key.phase, key.where), []).append(key)
    return found
