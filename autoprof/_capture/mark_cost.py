"""``MarkCost``: the overhead of one mark, measured by ``calibration`` and counted as overhead by ``_resolve``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MarkCost:
    """Nanoseconds per mark: of a call with only its forward timed, and of one whose backward is timed as well."""

    forward_ns: float = 0.0
    backward_ns: float = 0.0

    def of(self, marks: int) -> float:
        """Return an upper bound of the cost of this many marks, in nanoseconds."""
        return marks * max(self.forward_ns, self.backward_ns)
