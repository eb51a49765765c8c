"""In the process: open the session of a training that runs, at the end of an optimizer step, and close it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from torch import nn
from torch.optim import Optimizer

from ...base.log import logger
from ...base.process import lifecycle
from ...base.process.gc_paused import GcPaused
from ...errors import SessionError
from ...session.builder import FoundTraining, open_session
from ...session.session import OpenSession
from ...sinks import load_config
from ..launch.models import Models, calling_frame, find_models, join_models, living, parameters_of
from .exchange import TEXT, Request

MOST_IN_TURN = 8
"""More optimizers than these step inside the backward, one for each parameter."""


class Trained(NamedTuple):
    """The models that a process trains, and the number of their optimizers."""

    models: list[nn.Module]
    optimizers: int


def find_trained(optimizer: Any, called: Sequence[nn.Module]) -> Trained:
    """Return the training whose optimizer has just made a step; ``called`` are modules known to be in the process."""
    inside = {id(one): one for outer in called for one in outer.modules()}
    with GcPaused():
        optimizers = [*living(Optimizer, "param_groups", [optimizer])]
        trained = set().union(*map(parameters_of, optimizers))
        return Trained(find_models(trained, None, [*inside.values()]), len(optimizers))


def open_attached(request: Request, exchange: Path, trained: Trained) -> Attached:
    """Open the session. Raises ``AutoprofError`` where none can be opened; then nothing is attached."""
    if lifecycle.open_sessions():
        raise SessionError("a session is open in it already: the program, or autoprof run, records it")
    if not trained.models:
        raise SessionError("an optimizer made a step, but no nn.Module holds its parameters")
    model = join_models(trained.models, calling_frame())
    config = load_config(None if request.config is None else Path(request.folder) / request.config)
    output = Path(request.folder) / (request.output or config.output)
    stream = open(exchange / TEXT, "a", encoding="utf-8")  # noqa: SIM115 (closed with the session)
    in_turn = trained.optimizers if trained.optimizers <= MOST_IN_TURN else 0
    found = FoundTraining(request.name, stream, in_turn, meeting=request.name, reader=request.folder)
    try:
        session = open_session(
            model, config.model_copy(update={"output": output}), optimizer=None, sinks=(), found=found
        )
        if not isinstance(session, OpenSession):
            raise SessionError("AUTOPROF=0 in its environment, or enabled: false in the configuration, switches it off")
    except BaseException:
        stream.close()
        raise
    lifecycle.mark_launched(session)
    return Attached(session, model if isinstance(model, Models) else None, stream)


class _Log(logging.StreamHandler[TextIO]):
    """The messages of the session, which are the command's and not the program's; without room there are none."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Print nothing into the program's output."""


class Attached:
    """The session that a command has opened in this process."""

    def __init__(self, session: OpenSession, joined: Models | None, stream: TextIO) -> None:
        self._session, self._stream = session, stream
        self._log = _Log(stream)
        logger.addHandler(self._log)
        self._joined = joined
        """The module that holds the session's models, where there are several: nothing else keeps it alive."""
        self.folder = None if session.folder is None else os.path.abspath(session.folder)

    @property
    def ended(self) -> bool:
        """Whether the session is closed: the program may have done it, or opened one itself."""
        return self._session.ended

    def has_steps(self, steps: int | None) -> bool:
        """Return whether this number of whole steps has ended: the first one was cut by the opening."""
        return steps is not None and self._session.steps > steps

    def close(self) -> None:
        """Close the session, which prints its report."""
        try:
            self._session.close()
        finally:
            logger.removeHandler(self._log)
            with suppress(OSError):  # a full disk
                self._stream.close()
            self._joined = None

    def leave(self, finders: frozenset[int]) -> str:
        """Remove the traces of a session in the process, but the import finders given by id; name those that stay."""
        lifecycle.remove_exit_function()
        with suppress(Exception):  # another version of wrapt
            _remove_finder(finders)
        modules = sum(name.partition(".")[0] == "autoprof" for name in sys.modules)
        return f"{modules} imported modules, and one function that Python calls in a fork and cannot remove"


def _remove_finder(finders: frozenset[int]) -> None:
    """Remove the finder with which wrapt waits for imports, where autoprof alone has asked it to."""
    importer: Any = import_module("wrapt.importer")
    hooks = importer._post_import_hooks
    if any(not hook.__module__.startswith("autoprof.") for waiting in hooks.values() for hook in waiting):
        return
    for finder in sys.meta_path[:]:
        if isinstance(finder, importer.ImportHookFinder) and id(finder) not in finders:
            sys.meta_path.remove(finder)
            importer._post_import_hooks_init = False  # wrapt inserts it again with the next hook
