"""The sets of shapes that modules took and returned, each kept once."""

from __future__ import annotations

from dataclasses import replace

from ..frame import NamedShape, StepFrame
from ..summary import Shapes

_Key = tuple[str, tuple[NamedShape, ...], tuple[NamedShape, ...]]


class ShapeSets:
    """Keep up to ``limit`` sets of shapes; ``dropped`` counts further ones."""

    def __init__(self, limit: int) -> None:
        self.dropped = 0
        self._limit = limit
        self._sets: dict[_Key, Shapes] = {}

    def all(self) -> tuple[Shapes, ...]:
        """Return the sets so far."""
        return tuple(self._sets.values())

    def add_frame(self, frame: StepFrame) -> None:
        """Add the shapes that occurred first in this step; modules of one name with the same shapes share a set."""
        for one in frame.shapes:
            key = one.name, one.inputs, one.outputs
            known = self._sets.get(key)
            if known is not None:
                self._sets[key] = replace(known, fqns=tuple(dict.fromkeys((*known.fqns, one.fqn))))
            elif len(self._sets) < self._limit:
                self._sets[key] = Shapes(one.name, (one.fqn,), frame.step, one.inputs, one.outputs)
            else:
                self.dropped += 1
