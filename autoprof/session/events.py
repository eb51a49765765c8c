"""The events of a training program: frozen values, each with the facts that decide where it belongs.

Objects are named by their ``id``. The marks of the open step are no part of an event: the detector asks for them where
it needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias


class Marks(Protocol):
    """The marks of the open step; an unsampled step has none."""

    @property
    def position(self) -> int:
        """The position of the next mark."""

    def calls_since(self, start: int) -> Sequence[str]:
        """Return the fqns of the modules called since this position, in their order, without the calls inside calls."""


class ForwardBegins(NamedTuple):
    """A forward begins, of the model or of a module that the program calls in its place."""

    module: int
    is_model: bool
    training: bool
    """The mode of the module."""
    graded: bool
    """Whether gradients are enabled."""
    thread: int
    inference: bool = False
    """Whether it is in ``inference_mode``: its outputs cannot take part in a backward pass."""


class Fetch(NamedTuple):
    """A batch is fetched."""

    source: Any
    """The loader, or its dataset."""
    explicit: bool
    """Whether the loader was given to ``session.loader``."""
    graded: bool


class UpdateBegins(NamedTuple):
    """An optimizer's step begins."""

    optimizer: int


class UpdateEnds(NamedTuple):
    """An optimizer's step has ended."""

    optimizer: int
    thread: int
    owned: bool = True
    """Whether the optimizer holds parameters of the model."""
    in_backward: bool = False
    is_last: bool = False
    """Whether no other hook follows, so that the training step may end here."""
    moved: bool = True
    """Whether it changed parameters."""


class BackwardBegins(NamedTuple):
    """A backward pass begins."""

    thread: int


class ModeChanged(NamedTuple):
    """``model.train()`` or ``model.eval()`` was called."""

    training: bool
    thread: int


class StepCalled(NamedTuple):
    """``session.step()`` was called."""


class PauseBegins(NamedTuple):
    """A block begins that the program, or a probe, names as part of no step."""

    name: str


class PauseEnds(NamedTuple):
    """That block has ended."""


Event: TypeAlias = (
    ForwardBegins
    | Fetch
    | UpdateBegins
    | UpdateEnds
    | BackwardBegins
    | ModeChanged
    | StepCalled
    | PauseBegins
    | PauseEnds
)


# Decisions of the steps.


class EndStep(NamedTuple):
    """End the open step."""

    steps_in_one: int = 1
    """The training steps that the open step turned out to be."""


class Exclude(NamedTuple):
    """Time belongs to no step from now on."""

    name: str
    recognised: bool = False
    """Whether the detector recognised it, and the program did not name it."""


class Include(NamedTuple):
    """Time belongs to the step again; count the excluded time under this name, if it has one."""

    name: str | None
    recognised: bool = False
    """Whether the detector had recognised the excluded time."""


class ExcludeOpen(NamedTuple):
    """The open step belongs to no statistic."""


# Decisions of the hooks.


class Follow(NamedTuple):
    """Report the forwards of the module with this fqn, too."""

    fqn: str


class TrainsInUpdate(NamedTuple):
    """The model trains inside an optimizer's step: the training step may end with it."""


class CountByUpdates(NamedTuple):
    """From the next step on the updates of an optimizer count the steps, one in each; None: they do not any more."""

    optimizer: int | None


class StepsAreManual(NamedTuple):
    """From now on steps end by calls of ``session.step`` only."""


class ReportBackward(NamedTuple):
    """Report backward passes from now on, or report none."""

    on: bool


class RecordingIsOff(NamedTuple):
    """A failure has ended the recording, and no event is wanted any more. The steps return it, not the detector."""


OFF: Final = (RecordingIsOff(),)
"""The decision on each event once a failure has ended the recording."""
StepDecision: TypeAlias = EndStep | Exclude | Include | ExcludeOpen
HookDecision: TypeAlias = Follow | TrainsInUpdate | CountByUpdates | StepsAreManual | ReportBackward | RecordingIsOff
Decision: TypeAlias = StepDecision | HookDecision
