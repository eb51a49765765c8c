"""What is open on a lane while its marks are read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Open:
    """Something open on a lane's stack: a span (-1: none wanted), or the floor under a backward pass.

    A ``gap`` is the span on a floor while no instrumented module's backward runs. ``resume`` are the backwards that
    a recompute interrupted. ``begun`` has the calls that have had their backward in the pass above this floor, each
    with its last span.
    """

    span: int
    index: int = -1
    ordinal: int = -1
    floor: bool = False
    nested: bool = False
    backward: bool = False
    gap: bool = False
    resume: tuple[Open, ...] = ()
    begun: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Lane:
    """A lane's stack, the last mark on it, and the span that was marked last, with whether it was its end."""

    number: int
    stack: list[Open] = field(default_factory=list)
    last: int = -1
    marked: tuple[int, bool] | None = None

    def floor(self) -> int | None:
        """Return the position on the stack of the innermost backward pass's floor."""
        return next((i for i in range(len(self.stack) - 1, -1, -1) if self.stack[i].floor), None)

    def begun(self) -> dict[int, int]:
        """Return the calls that have had their backward in the innermost backward pass."""
        floor = self.floor()
        return {} if floor is None else self.stack[floor].begun

    def innermost(self) -> int:
        """Return the innermost open span, or -1."""
        return next((entry.span for entry in reversed(self.stack) if entry.span >= 0), -1)
