"""The interface of probes that watch a step outside the model's modules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from torch import nn

from ..base.allowance import Allowance
from ..base.log import logger
from ..base.plugins import PartKind
from ..capture.handle import Handle, Probe
from ..capture.hooks.module_hooks import Hooks
from ..capture.hooks.optimizer_hooks import ModelOptimizers
from ..capture.recorder import Recorder
from ._batches import FetchedBatches
from ._prefetch import Prefetch

if TYPE_CHECKING:
    from ..config import Settings

P = TypeVar("P")


class StepEvents(Protocol):
    """The session's view of the run: it decides where a step ends, and which time is excluded from steps."""

    @property
    def is_recording(self) -> bool:
        """Whether the open step is recorded."""

    @property
    def is_excluded(self) -> bool:
        """Whether the present time belongs to no step: validation, checkpoint saving or a pause."""

    def excluding(self, name: str) -> AbstractContextManager[None]:
        """Exclude the time inside the block from steps, under this name."""

    def report_fetch(self, source: Any, *, explicit: bool) -> None:
        """Called before each fetch; ``source`` is the dataset, ``explicit`` for loaders of ``session.loader``."""

    def report_mode(self, training: bool) -> None:
        """Called by each ``model.train()`` and ``model.eval()``."""


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """The parts of a session that a probe may use."""

    model: nn.Module
    optimizers: ModelOptimizers
    """Tells the optimizers that train the model."""
    settings: Settings
    recorder: Recorder
    """Takes marks; its ``clock`` reads the time, also where the model moves to another device."""
    module_hooks: Hooks
    """Makes hooks that mark the forward and backward of a module."""
    follows_backward: bool
    """Whether any target has its backward timed."""
    training_forward_calls: list[Callable[[], None]]
    """Functions that are called at each training forward of the model; add to them."""
    prefetch: Prefetch
    """Counts fetches that found no batch ready."""
    batches: FetchedBatches
    """Counts the samples of the batches fetched."""
    hooks_allowance: Allowance
    """Pays for the work of hooks within steps."""
    lines_allowance: Allowance
    """Pays for samples of the stack."""
    events: StepEvents | None = None
    """The session's events, for probes that report them; they are made last. None for all others."""
    real_time: bool = True
    """Whether the recorder's clock reads real time, as that of a test does not."""


@dataclass(frozen=True, slots=True)
class ProbeFactory:
    """A kind of probe: a module of ``autoprof.probes`` holds one as ``PROBE``.

    ``make`` returns a session's probe, or None where the session needs none. It attaches nothing.
    """

    make: Callable[[ProbeContext], Probe | None]
    always: bool = False
    """Whether the probe stays attached from the start to the end; else only in sampled steps."""
    reports_events: bool = False
    """Whether the probe calls ``context.events``. Such a probe is always attached, and made after all others."""


PROBES: Final = PartKind("probe", "autoprof.probes", "PROBE", ProbeFactory)
"""All kinds of probes: the modules of this package, and the entry points of other packages."""


class StepProbes:
    """The probes of one session that report events, where the context has ``events``, or else all others."""

    def __init__(self, context: ProbeContext) -> None:
        self._handle = Handle()
        always: list[Probe] = []
        sampled: list[Probe] = []
        for name, factory in PROBES.parts.items():
            if factory.reports_events is (context.events is None):
                continue
            probe = _make(name, factory, context)
            if probe is not None:
                self._handle.add(probe.remove)
                (always if factory.always or factory.reports_events else sampled).append(probe)
        self.always = tuple(always)
        """Attached for the whole session."""
        self.sampled = tuple(sampled)
        """Attached in sampled steps."""

    def find(self, kind: type[P]) -> P:
        return next(probe for probe in (*self.always, *self.sampled) if isinstance(probe, kind))

    def remove(self) -> None:
        """Remove all probes, even if some fail; then raise the first failure."""
        self._handle.remove()


def _make(name: str, factory: ProbeFactory, context: ProbeContext) -> Probe | None:
    if name in PROBES.modules:
        return factory.make(context)
    try:
        probe = factory.make(context)
    except Exception as error:  # another package's code may raise anything, and must not stop a training
        logger.warning("probe %r of another package: %s: %s", name, type(error).__name__, error)
        return None
    return None if probe is None else _Guarded(name, probe, context.recorder)


class _Guarded:
    """A probe of another package: its first failure is counted and switches it off."""

    def __init__(self, name: str, probe: Probe, recorder: Recorder) -> None:
        self._name = name
        self._probe = probe
        self._recorder = recorder
        self._failed = False

    def attach(self) -> None:
        self._call(self._probe.attach)

    def detach(self) -> None:
        self._call(self._probe.detach)

    def remove(self) -> None:
        self._failed = False  # whatever failed before, it must leave nothing behind
        self._call(self._probe.remove)

    def _call(self, method: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            method()
        except Exception:
            self._failed = True
            self._recorder.handle_failure(f"probe {self._name!r}")
