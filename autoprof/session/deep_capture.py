"""``with autoprof.deep_capture(…)``: record the steps inside with ``torch.profiler`` under autoprof's names."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from torch import nn

from ..base.failures import contain, describe
from ..base.process import lifecycle
from ..base.process.ranks import rank
from ..base.signals import DeferSignals
from ..capture.hooks.optimizer_hooks import OptimizerHooks
from ..capture.marks.native import require_extension
from ..errors import SessionError
from ..sinks import Config, load_config
from ..targets import Target, select_targets
from .flight.capture import Capture, CaptureOptions, make_options
from .flight.named import open_range

Result = TypeVar("Result")
logger = logging.getLogger("autoprof")


def deep_capture(
    model: nn.Module | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    prefix: str = "deep",
    activities: Iterable[Any] | None = None,
    memory: bool = True,
    shapes: bool = False,
    stacks: bool = False,
    snapshot: bool = False,
    max_steps: int = 10,
) -> DeepCapture:
    """Record the steps of a ``with`` block with ``torch.profiler``, with autoprof's names in the trace.

    Names are those of the session open on ``model`` (or of the only open one); without a session, those that
    ``config`` selects in ``model``. Files go to ``folder`` (default: the session's rank folder, else ``deep``); their
    names start with ``prefix`` and contain the rank. ``activities`` are names or members of torch's
    ``ProfilerActivity`` (default: all that are available). Of each operator ``memory`` records the allocations,
    ``shapes`` those of the inputs, and ``stacks`` the lines of the program; ``snapshot`` adds the history of CUDA's
    allocator. The capture ends after ``max_steps`` steps. Raises ``SessionError``, ``ConfigError`` or ``TargetError``
    when called; failures inside the block are notes.
    """
    require_extension()
    options = make_options(
        activities=activities, memory=memory, shapes=shapes, stacks=stacks, snapshot=snapshot, max_steps=max_steps
    )
    if model is not None and not isinstance(model, nn.Module):
        raise SessionError(f"deep_capture: model is a {type(model).__name__}; it must be an nn.Module")
    if config is not None and model is None:
        raise SessionError("deep_capture: config names modules of a model; give the model as well")
    session: Any = None if config is not None else lifecycle.session_of(model)
    if session is not None:
        targets, folder = session.targets, folder or session.rank_folder
    else:
        targets = () if model is None else select_targets(model, load_config(config))
    return DeepCapture(options, Path(folder or "deep"), str(prefix), targets=targets, session=session)


class DeepCapture:
    """A deep capture as a context manager; ``result`` is set after the block."""

    def __init__(
        self,
        options: CaptureOptions,
        folder: Path,
        stem: str,
        *,
        targets: Iterable[Target] = (),
        session: Any = None,
        replace: bool = False,
        first_step: int = 1,
    ) -> None:
        self.notes: list[str] = []
        """Notes about failures and limits."""
        self.entered = False
        """Whether the block is open."""
        self._session = session
        self.capture = Capture(
            options,
            folder.absolute(),  # the program may change its working directory
            stem,
            rank(),
            targets=targets,
            warn=self._warn,
            replace=replace,
        )
        self._hooks = OptimizerHooks(after=self._optimizer_stepped)
        self._manual = False
        """Whether the program ends steps by calls."""
        self._updates = 0
        self._number = first_step - 1
        self._work = DeferSignals()
        self._undo: Callable[[], object] = self._hooks.detach
        """Ends the following of a session's steps."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The written files, the trace first."""
        return tuple(self.capture.files)

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of the captured steps."""
        return tuple(self.capture.steps)

    @property
    def result(self) -> Any:
        """torch's ``key_averages`` of the capture under autoprof's names; None without a trace."""
        return None if self.capture.profile is None else self.capture.averages()

    @property
    def refused(self) -> str | None:
        """The reason for a missing trace; None with a trace or before the end of the block."""
        return self.capture.refused

    def __enter__(self) -> DeepCapture:
        self.entered = True
        with self._work, self._excluded():
            if self.capture.begin():
                if self._session is None:
                    self._hooks.attach()
                    self._begin_step()
                else:
                    self._undo = self._session.follow_steps(self._follow, self.capture.options.max_steps)
        return self

    def step(self) -> None:
        """End a step. With an open session its steps count and this call does nothing."""
        if self._session is None:
            self._manual = True
            self._begin_step()

    def record(self, name: str, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Call ``function`` inside a range of this name; return its result."""
        with ExitStack() as stack:
            if self.capture.running:
                stack.callback(open_range(str(name), self.capture.encoded_names))
            return function(*args, **kwargs)

    def table(self) -> str:
        """Return the tables of layers and operators as text."""
        return f"no trace: {self.refused}" if self.capture.profile is None else self.capture.table()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.entered:
            return
        self.entered = False
        with self._work, self._excluded():
            for undo in (self._hooks.detach, self._undo):
                with contain(lambda error: self._warn(f"deep capture: {describe(error)}")):
                    undo()
            self.capture.end()

    def _excluded(self) -> Any:
        """Exclude the block from the session's steps."""
        return nullcontext() if self._session is None else self._session.pause()

    def _follow(self, number: int) -> bool:
        excluded = self.capture.running
        self.capture.step(number)
        return excluded

    def _begin_step(self) -> None:
        self._number += 1
        self.capture.step(self._number)

    def _optimizer_stepped(self, *_call: Any) -> None:
        """Count the updates of a program without calls of ``step``: its capture is bounded all the same."""
        self._updates += 1
        if self._updates >= self.capture.options.max_steps and not self._manual:
            self.capture.end_early()

    def _warn(self, note: str) -> None:
        self.notes.append(note)
        if self._session is not None:
            self._session.warn_once(note)
        else:
            logger.warning(note)
