"""What marks cost: found by ``calibrate``, charged by ``resolve``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Price:
    """Nanoseconds per mark: of a call's forward alone, and of a call whose backward is followed."""

    plain_ns: float = 0.0
    followed_ns: float = 0.0

    def of(self, marks: int) -> float:
        """Return what so many marks cost at most."""
        return marks * max(self.plain_ns, self.followed_ns)
