"""Results of the trial steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .._targets import Coverage, Selection
from ..frame import Phase, StepFrame
from ..summary import Summary
from .digest import Digests


@dataclass
class Outcome:
    """Result of one trial. ``error`` describes a failure; the digests are then those made before it."""

    digests: Digests = field(default_factory=dict)
    step_ns: list[int] = field(default_factory=list)
    """Lengths of the repeated steps."""
    error: str | None = None
    trained: bool = False
    """Whether the step had a loss to call ``backward`` on."""

    @property
    def shortest_ns(self) -> int | None:
        """The length of the shortest repeated step: the one with the least interference."""
        return min(self.step_ns, default=None)


@dataclass
class Profiled(Outcome):
    """Result of a profiled trial: its frames, the compared step first, and the hooks left on the model."""

    frames: list[StepFrame] = field(default_factory=list)
    summary: Summary | None = None
    selection: Selection | None = None
    changed_hooks: tuple[str, ...] = ()
    """Modules whose hooks differed after ``close``."""

    def calls(self) -> dict[str, int]:
        """Count the recorded calls of the compared step by fqn."""
        forward = {target.fqn for target in self.selection or () if Phase.FORWARD in target.phases}
        return self._count(lambda fqn, phase: phase is Phase.FORWARD or fqn not in forward)

    def backward_calls(self) -> dict[str, int]:
        """Count the calls with a backward span in the compared step by fqn."""
        return self._count(lambda _fqn, phase: phase is Phase.BACKWARD)

    def _count(self, wanted: Callable[[str, Phase], bool]) -> dict[str, int]:
        found: dict[str, int] = {}
        if self.frames:
            layout = self.frames[0].layout
            for fqn, phase, calls in zip(layout.fqns, layout.phases, layout.calls, strict=True):
                if fqn is not None and wanted(fqn, phase):
                    found[fqn] = found.get(fqn, 0) + calls
        return found


@dataclass(frozen=True)
class Observed:
    """Result of one observed step."""

    complete: bool
    """Whether direct calls of ``.forward()`` could be observed too."""
    modules: tuple[Coverage, ...]
    gradient_calls: Mapping[str, int]
    """Calls whose output received a gradient, by fqn."""
    error: str | None
