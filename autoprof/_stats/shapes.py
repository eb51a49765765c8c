"""The sets of shapes that modules took and returned, each kept once."""

from __future__ import annotations

from collections.abc import Iterable
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
        """Add the shapes that occurred first in this step."""
        self.add(Shapes(one.name, (one.fqn,), frame.step, one.inputs, one.outputs) for one in frame.shapes)

    def add(self, shapes: Iterable[Shapes]) -> None:
        """Add sets of shapes; modules of one name with the same shapes share a set."""
        for one in shapes:
            key = one.name, one.inputs, one.outputs
            known = self._sets.get(key)
            if known is not None:
                fqns = tuple(dict.fromkeys((*known.fqns, *one.fqns)))
                self._sets[key] = replace(known, step=min(known.step, one.step), fqns=fqns)
            elif len(self._sets) < self._limit:
                self._sets[key] = one
            else:
                self.dropped += 1
