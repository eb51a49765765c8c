"""The blocks that belong to no step, while they are open, and the excluded time of the open step."""

from __future__ import annotations

from .events import Exclude, Include
from .observers import ExcludedTime


class Exclusions:
    """Count the time of validation, saving and pauses, which may lie one inside the other, in ``counts``."""

    def __init__(self, counts: ExcludedTime) -> None:
        self._counts = counts
        self.step_ns = 0
        """The excluded time of the open step."""
        self._depth = 0
        """The open blocks, one inside the other."""
        self._begins_ns: list[int] = []
        """The begins of those that the program, or a probe, has named."""
        self._validation_ns = 0
        """The begin of the validation that was recognised, without the blocks inside it."""
        self._since_ns = 0
        """The begin of the outermost block, or of the step where that began later."""

    @property
    def is_open(self) -> bool:
        """Whether time belongs to no step now."""
        return self._depth > 0

    @property
    def is_last(self) -> bool:
        """Whether the outermost block alone is open."""
        return self._depth == 1

    def open(self) -> bool:
        """Open a block, which begins now; return whether it is the outermost one."""
        self._depth += 1
        return self._depth == 1

    def begin(self, decision: Exclude, now_ns: int, *, outermost: bool) -> None:
        """Note the begin of the block that was opened last."""
        if decision.recognised:
            self._validation_ns = now_ns
        else:
            self._begins_ns.append(now_ns)
        if outermost:
            self._since_ns = now_ns

    def close(self) -> bool:
        """Close the innermost block; return whether time belongs to the step again."""
        self._depth -= 1
        return self._depth == 0

    def end(self, decision: Include, now_ns: int, *, outermost: bool, steps: int) -> None:
        """Count the block that was closed last; so many steps have ended before it."""
        if outermost:
            self.step_ns += now_ns - self._since_ns
        if decision.recognised:
            ns = now_ns - self._validation_ns
        else:
            ns = now_ns - self._begins_ns.pop()
            self._validation_ns += 0 if decision.name is None else ns
        if decision.name is not None:
            self._counts.add(decision.name, ns, steps)

    def split(self, now_ns: int) -> None:
        """Count an open block up to now in the step that ends; the rest of it lies in the next one."""
        if self._depth:
            self.step_ns += now_ns - self._since_ns
            self._since_ns = now_ns

    def begin_step(self) -> None:
        """Count the excluded time of another step from now on."""
        self.step_ns = 0
