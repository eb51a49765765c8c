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
MAX_PLACES: Final = 8
"""Updates of a step whose followers have a history of their own."""


class Place(Enum):
    """The place of forwards without gradients that came between an update and the next training forward."""

    IN_STEP = "part of the step: each step has them"
    EXCLUDED = "part of no step: hardly any step has them"
    AMBIGUOUS = "either: many steps have them, and many have not"


class Regularity:
    """How many forwards (or blocks) without gradients followed each update of the last steps.

    ``updates`` is the number of updates that the step made before them: each place of a step has a history of its own.
    """

    def __init__(self) -> None:
        self._counts: dict[int, deque[int]] = {}

    def add(self, updates: int, count: int) -> None:
        """Add the number of one step."""
        self._at(updates).append(count)

    def is_rare(self, updates: int, number: int = 1) -> bool:
        """Whether hardly any step has this many or more."""
        counts = self._at(updates)
        return len(counts) >= MIN_HISTORY and _share(counts, number) <= RARE

    def excess(self, updates: int, count: int) -> int:
        """Return how many of ``count`` forwards are more than the steps have."""
        return sum(self.is_rare(updates, number) for number in range(1, count + 1))

    def place(self, updates: int, count: int) -> tuple[Place, int]:
        """Return the place of ``count`` forwards, and how many of them, the first ones, it is the place of."""
        counts = self._at(updates)
        if len(counts) < MIN_HISTORY:
            return Place.IN_STEP, count
        if _share(counts, 1) < 1:
            return (Place.EXCLUDED if self.is_rare(updates) else Place.AMBIGUOUS), count
        fewest, most = min(counts), max(counts)
        usual = most if fewest == most else 2 * most
        return (Place.IN_STEP, count) if count <= usual else (Place.EXCLUDED, count - fewest)

    def _at(self, updates: int) -> deque[int]:
        place = min(updates, MAX_PLACES)
        counts = self._counts.get(place)
        if counts is None:
            counts = self._counts[place] = deque(maxlen=HISTORY)
        return counts


def _share(counts: deque[int], number: int) -> float:
    return sum(count >= number for count in counts) / len(counts)
