"""What the trials of a step come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .._targets import Coverage, Selection
from ..frame import Phase, StepFrame
from ..summary import Summary
from .digest import Digests


@dataclass
class Outcome:
    """What one trial came to. ``error`` says how it failed; the digests are then what there was until then."""

    digests: Digests = field(default_factory=dict)
    step_ns: list[int] = field(default_factory=list)
    """The lengths of the further steps."""
    error: str | None = None
    trained: bool = False
    """Whether there was something to call ``backward`` on."""

    @property
    def least_ns(self) -> int | None:
        """The length of the further step that was least disturbed."""
        return min(self.step_ns, default=None)


@dataclass
class Profiled(Outcome):
    """What a profiled trial came to: its frames, the compared step's first, and what it left on the model."""

    frames: list[StepFrame] = field(default_factory=list)
    summary: Summary | None = None
    selection: Selection | None = None
    left: tuple[str, ...] = ()
    """Modules whose hooks were not the same after ``close``."""

    def calls(self) -> dict[str, int]:
        """Count the calls that the hooks saw in the compared step, by fqn."""
        forward = {target.fqn for target in self.selection or () if Phase.FORWARD in target.phases}
        return self._count(lambda fqn, phase: phase is Phase.FORWARD or fqn not in forward)

    def backward_calls(self) -> dict[str, int]:
        """Count the calls that have a backward span in the compared step, by fqn."""
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
class Watched:
    """What watching one step showed."""

    watched: bool
    modules: tuple[Coverage, ...]
    graded: Mapping[str, int]
    """Calls whose output received a gradient, by fqn."""
    error: str | None
