"""The events of a training program: frozen values, each with the facts that decide where it belongs.

Positions are those of marks in the open step's buffer; an unsampled step has none. Objects are named by their ``id``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias


class OutermostModuleCall(NamedTuple):
    """An outermost call of a module, by the positions of its marks; an end of -1: the call has not returned."""

    start: int
    end: int
    fqn: str


class Moment(NamedTuple):
    """A point of the open step."""

    position: int
    """The position of its mark; -1 in an unsampled step."""
    ns: int
    """Host time without the pauses before it."""


Calls: TypeAlias = tuple[OutermostModuleCall, ...] | None
"""The outermost calls of modules since the position that the detector named; None where they are unknown."""


class ForwardBegins(NamedTuple):
    """A forward begins, of the model or of a module that the program calls in its place."""

    module: int
    is_model: bool
    training: bool
    """The mode of the module."""
    graded: bool
    """Whether gradients are enabled."""
    thread: int
    updated: bool = False
    """Whether the program has changed the parameters since the last step, without an optimizer of torch."""
    calls: Calls = None


class Fetch(NamedTuple):
    """A batch is fetched."""

    source: Any
    """The loader, or its dataset."""
    explicit: bool
    """Whether the loader was given to ``session.loader``."""
    graded: bool
    updated: bool = False
    calls: Calls = None


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
    position: int = 0
    calls: Calls = None


class BackwardBegins(NamedTuple):
    """A backward pass begins."""

    thread: int
    watched: bool = False
    """Whether the program may update without an optimizer of torch, so that ``BackwardEnds`` follows."""
    calls: Calls = None


class BackwardEnds(NamedTuple):
    """A backward pass has ended, after which the program may update without an optimizer of torch."""

    position: int = 0


class UngradedBlockBegins(NamedTuple):
    """An outermost block under ``no_grad`` or ``inference_mode`` begins."""


class UngradedBlockEnds(NamedTuple):
    """The block has ended. Both moments are None where the detector did not ask for them."""

    began: Moment | None = None
    ended: Moment | None = None


class ModeChanged(NamedTuple):
    """``model.train()`` or ``model.eval()`` was called."""

    training: bool
    thread: int


class StepCalled(NamedTuple):
    """``session.step()`` was called."""

    calls: Calls = None


class PauseBegins(NamedTuple):
    """A block begins that the program, or a probe, names as part of no step."""

    name: str


class PauseEnds(NamedTuple):
    """That block has ended."""


class LoopEnds(NamedTuple):
    """The session closes."""

    position: int = 0
    updated: bool = False
    calls: Calls = None


Event: TypeAlias = (
    ForwardBegins
    | Fetch
    | UpdateBegins
    | UpdateEnds
    | BackwardBegins
    | BackwardEnds
    | UngradedBlockBegins
    | UngradedBlockEnds
    | ModeChanged
    | StepCalled
    | PauseBegins
    | PauseEnds
    | LoopEnds
)


# Decisions.


class EndStep(NamedTuple):
    """End the open step; it turned out to hold so many training steps."""

    held: int = 1


class Exclude(NamedTuple):
    """Time belongs to no step from now on."""

    name: str
    fetches: bool = False
    """Whether the fetches right before belong to no step either."""
    recognised: bool = False
    """Whether the detector recognised it, and the program did not name it."""


class Include(NamedTuple):
    """Time belongs to the step again; count the excluded time under this name, if it has one."""

    name: str | None
    recognised: bool = False
    """Whether the detector had recognised the excluded time."""


class ExcludeMarks(NamedTuple):
    """The marks from ``start`` to ``end`` belong to no step: a block, or calls with the fetches right before them."""

    start: Moment
    end: Moment
    fetches: bool = False


class RenameMarks(NamedTuple):
    """The calls between these positions become one span, and a note names the module."""

    start: int
    end: int
    fqn: str


class MarkBlock(NamedTuple):
    """Note the moment: a block without gradients begins that may belong to no step."""


class Follow(NamedTuple):
    """Report the forwards of the module with this fqn, too."""

    fqn: str


class TrainsInUpdate(NamedTuple):
    """The model trains inside an optimizer's step: the training step may end with it."""


class ExcludeOpen(NamedTuple):
    """The open step belongs to no statistic."""


class EndLast(NamedTuple):
    """No further step follows. Close the open one where it is ``whole``."""

    whole: bool
    updated_at: int | None
    """The position of its update, after which the loop may have ended; None where the program ends steps by calls."""


Decision: TypeAlias = (
    EndStep
    | Exclude
    | Include
    | ExcludeMarks
    | RenameMarks
    | MarkBlock
    | Follow
    | TrainsInUpdate
    | ExcludeOpen
    | EndLast
)
