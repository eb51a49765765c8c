"""Shapes that modules took and returned, kept once for each set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..frame import NamedShape, StepFrame
from ..summary import Shapes

_Key = tuple[str, tuple[NamedShape, ...], tuple[NamedShape, ...]]


class ShapeNotes:
    """Keep up to ``most`` sets of shapes; ``dropped`` counts what came beyond."""

    def __init__(self, most: int) -> None:
        self.dropped = 0
        self._most = most
        self._held: dict[_Key, Shapes] = {}

    def all(self) -> tuple[Shapes, ...]:
        """Return what was noted."""
        return tuple(self._held.values())

    def add(self, frame: StepFrame) -> None:
        """Note the shapes first met in this step."""
        self.note(Shapes(one.name, (one.fqn,), frame.step, one.inputs, one.outputs) for one in frame.shapes)

    def note(self, shapes: Iterable[Shapes]) -> None:
        """Keep these; a further module of the same name with the same ones joins the first."""
        for one in shapes:
            key = one.name, one.inputs, one.outputs
            held = self._held.get(key)
            if held is not None:
                fqns = tuple(dict.fromkeys((*held.fqns, *one.fqns)))
                self._held[key] = replace(held, step=min(held.step, one.step), fqns=fqns)
            elif len(self._held) < self._most:
                self._held[key] = one
            else:
                self.dropped += 1
