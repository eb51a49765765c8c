"""Compare the default with the record of every module: the same names first, with the same shares of the step."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

TOP: Final = 3
"""The longest rows that have to agree."""
POINTS: Final = 0.02
RELATIVE: Final = 0.10
"""Two shares of the step are equal if they differ by at most 2 points, 10 % of the larger one, or their uncertainty."""
CERTAIN: Final = 2.0
"""Standard errors of a difference that is no accident, in 19 of 20 cases."""


@dataclass(frozen=True, slots=True)
class Record:
    """One run: the share of the step that each name takes itself, by phase, in so many recorded steps."""

    shares: Mapping[str, Mapping[str, float]]
    errors: Mapping[str, float]
    """The standard error of each name's share: from step to step, and between two records."""
    recorded: int
    step_ns: int

    def share(self, name: str) -> float:
        """Return the share of all phases; zero for a name without a row."""
        return sum(self.shares.get(name, {}).values())

    def top(self, count: int = TOP) -> list[str]:
        """Return the names that take longest, the longest first."""
        return sorted(self.shares, key=lambda name: -self.share(name))[:count]

    def averaged_with(self, later: Record) -> Record:
        """Return the mean of two records of one program; half of their difference is an error too.

        Machine and program drift between the two records; a share measured in between may lie anywhere from one to the
        other.
        """
        shares: dict[str, dict[str, float]] = {}
        for name in {**self.shares, **later.shares}:
            one, other = self.shares.get(name, {}), later.shares.get(name, {})
            shares[name] = {phase: (one.get(phase, 0.0) + other.get(phase, 0.0)) / 2 for phase in {**one, **other}}
        errors = {}
        for name in shares:
            drift = self.share(name) - later.share(name)
            errors[name] = math.hypot(self.errors.get(name, 0.0), later.errors.get(name, 0.0), drift) / 2
        return Record(shares, errors, self.recorded + later.recorded, (self.step_ns + later.step_ns) // 2)

    def within(self, names: Collection[str]) -> Record:
        """Return the record with these names alone: each module without a row counts for the row around it."""
        shares: dict[str, dict[str, float]] = {}
        errors: dict[str, float] = {}
        for name, phases in self.shares.items():
            row = _row_around(name, names)
            total = shares.setdefault(row, {})
            for phase, share in phases.items():
                total[phase] = total.get(phase, 0.0) + share
            errors[row] = math.hypot(errors.get(row, 0.0), self.errors.get(name, 0.0))
        return replace(self, shares=shares, errors=errors)


@dataclass(frozen=True)
class Agreement:
    """The default and the full record of one model, trained for ``steps`` steps by default."""

    name: str
    steps: int
    default: Record
    full: Record

    @cached_property
    def same_rows(self) -> Record:
        """The full record with the rows of the default."""
        return self.full.within(self.default.shares.keys())

    @cached_property
    def problems(self) -> list[str]:
        """Say each point in which they do not agree."""
        return [*self._unnamed(), *self._shares(), *self._order()]

    def _unnamed(self) -> list[str]:
        """Name the longest modules without a row that are certainly longer than those that follow them."""
        full = self.full
        after = full.share(full.top(TOP + 1)[-1]) if len(full.shares) > TOP else 0.0
        return [
            f"{name}, {full.share(name):.1%} of the step, has no row"
            for name in full.top()
            if name not in self.default.shares and full.share(name) - CERTAIN * full.errors.get(name, 0.0) > after
        ]

    def _shares(self) -> list[str]:
        names = dict.fromkeys([*self.full.top(), *self.default.top()])
        return [
            f"{name}: {self.default.share(name):.1%} by default, {self.same_rows.share(name):.1%} in the full record"
            for name in names
            if name in self.default.shares
            and not close(self.default.share(name), self.same_rows.share(name), self._error(name))
        ]

    def _order(self) -> list[str]:
        """Compare neighbours in the default's order by the full record, where the difference is certain."""
        full = self.same_rows
        return [
            f"{second} is longer than {first} in the full record"
            for first, second in pairwise(self.default.top(TOP + 1))
            if full.share(second) > full.share(first)
            and not close(full.share(first), full.share(second), self._error(first, second))
        ]

    def _error(self, *names: str) -> float:
        """Return the standard error of a difference between shares of these names."""
        records = self.default, self.same_rows
        return math.hypot(*(record.errors.get(name, 0.0) for name in names for record in records))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.name,
            "steps": self.steps,
            "problems": self.problems,
            "default": _plain(self.default),
            "full": _plain(self.full),
        }


def _row_around(name: str, rows: Collection[str]) -> str:
    """Return the name itself, or the longest beginning of it that is a row."""
    row = name
    while row not in rows and "/" in row:
        row = row.rpartition("/")[0]
    return row if row in rows else name


def close(one: float, other: float, error: float = 0.0) -> bool:
    """Return whether two shares are equal within the bounds; ``error`` is the standard error of their difference."""
    return abs(one - other) <= max(POINTS, RELATIVE * max(one, other), CERTAIN * error)


def agreed(results: Sequence[Agreement]) -> int:
    """Return the number of models without a problem."""
    return sum(not result.problems for result in results)


def _plain(record: Record) -> dict[str, Any]:
    return {
        "recorded": record.recorded,
        "step_ns": record.step_ns,
        "shares": {name: dict(phases) for name, phases in record.shares.items()},
        "errors": dict(record.errors),
    }
