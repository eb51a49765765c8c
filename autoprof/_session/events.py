"""The events of a training program: frozen values, each with the facts that decide where it belongs.

Positions are those of marks in the open step's buffer; an unsampled step has none. Objects are named by their ``id``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias


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
    position: int = 0
    moved: bool = True
    """Whether it changed parameters."""
    calls: tuple[str, ...] = ()
    """The fqns of the modules called since the position that the detector named, without the calls inside calls."""


class BackwardBegins(NamedTuple):
    """A backward pass begins."""

    thread: int
    calls: tuple[str, ...] = ()
    """As those of ``UpdateEnds``."""


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


# Decisions.


class EndStep(NamedTuple):
    """End the open step; it turned out to hold so many training steps."""

    held: int = 1


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


class Follow(NamedTuple):
    """Report the forwards of the module with this fqn, too."""

    fqn: str


class TrainsInUpdate(NamedTuple):
    """The model trains inside an optimizer's step: the training step may end with it."""


class ExcludeOpen(NamedTuple):
    """The open step belongs to no statistic."""


Decision: TypeAlias = EndStep | Exclude | Include | Follow | TrainsInUpdate | ExcludeOpen
