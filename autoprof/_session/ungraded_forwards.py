"""Tell work without gradients that is part of training from work that is not, by how regular it is."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

HISTORY: Final = 8
"""Steps remembered."""
MIN_HISTORY: Final = 3
"""Steps before which nothing is decided: the first ones are warm-up."""
RARE: Final = 1 / 3
"""The largest share of the steps in which forwards that belong to no step are seen."""


class Place(Enum):
    """The place of forwards without gradients that came between an update and the next training forward."""

    IN_STEP = "part of the step: each step has them"
    EXCLUDED = "part of no step: hardly any step has them"
    AMBIGUOUS = "either: many steps have them, and many have not"


class UngradedForwards:
    """The numbers of forwards (or blocks) without gradients that each of the last steps had at one place."""

    def __init__(self) -> None:
        self._counts: deque[int] = deque(maxlen=HISTORY)

    def add(self, count: int) -> None:
        """Add the number of one step."""
        self._counts.append(count)

    def is_rare(self, number: int = 1) -> bool:
        """Whether hardly any step has this many or more."""
        return len(self._counts) >= MIN_HISTORY and self._share(number) <= RARE

    def excess(self, count: int) -> int:
        """Return how many of ``count`` forwards are more than the steps have."""
        return sum(self.is_rare(number) for number in range(1, count + 1))

    def _share(self, number: int) -> float:
        return sum(count >= number for count in self._counts) / len(self._counts)

    def place(self, count: int) -> tuple[Place, int]:
        """Return the place of ``count`` forwards, and how many of them, the first ones, it is the place of."""
        if len(self._counts) < MIN_HISTORY:
            return Place.IN_STEP, count
        if self._share(1) < 1:
            return (Place.EXCLUDED if self.is_rare() else Place.AMBIGUOUS), count
        fewest, most = min(self._counts), max(self._counts)
        usual = most if fewest == most else 2 * most
        return (Place.IN_STEP, count) if count <= usual else (Place.EXCLUDED, count - fewest)
