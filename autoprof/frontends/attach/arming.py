"""In the process: take a request, and wait for the end of an optimizer step.

A request may come between any two instructions of the main thread: inside a backward pass, a hook of torch, an import.
So one method of torch's optimizers is replaced here and nothing else; torch itself is not imported.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from threading import Lock
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from ...base.failures import contain, describe
from ...base.signals import DeferSignals
from ...errors import AutoprofError
from ..launch.announced import Announced
from .exchange import START, Request, reply

if TYPE_CHECKING:
    from ...capture.handle import Handle
    from .opening import Attached

OPTIMIZERS: Final = "torch.optim.optimizer"
STEP_END: Final = "_optimizer_step_code"
"""The method that torch calls after each optimizer step, before it reads the hooks of that step."""

_attachment: Attachment | None = None


def receive(path: str, added: str | None = None) -> None:
    """Take a request. It is called on a thread of its own: Python handles no signal there.

    ``added`` is the folder that was put on ``sys.path`` for it, which leaves it at the end.
    """
    request_path = Path(path)
    try:
        request = Request.read(request_path)
        if request is not None:
            _take(request, request_path, added)
    except Exception as error:
        reply(request_path.parent, "failed", reason=f"{type(error).__name__}: {error}")


def _take(request: Request, path: Path, added: str | None) -> None:
    global _attachment
    if _attachment is not None and not _attachment.gives_way():
        reply(path.parent, "failed", reason="a session is attached to it already; autoprof detach ends it")
    elif not _is_imported("torch") or not _is_imported(OPTIMIZERS):
        reply(path.parent, "failed", reason="no training yet: it has not imported torch; try again later")
    else:
        _attachment = Attachment(request, path, frozenset(map(id, sys.meta_path)), added)
        _attachment.arm()


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


class Attachment:
    """A request to attach, from its arrival to the end of its session. Only the training thread opens and closes."""

    def __init__(self, request: Request, path: Path, finders: frozenset[int], added: str | None) -> None:
        self._request, self._path, self._finders, self._added = request, path, finders, added
        self._pid = os.getpid()
        self._ends = Announced(sys.modules[OPTIMIZERS].Optimizer, STEP_END, self._step_ended)
        self._number = 0
        """The step ends so far."""
        self._around: Handle | None = None
        self._calls: Announced | None = None
        self._called: list[Any] = []
        """The modules that were called since the last step end, where they have to be known."""
        self._attached: Attached | None = None
        self._over = False
        self._lock = Lock()

    def arm(self) -> None:
        """Wait for step ends."""
        from ...base.process.replace import skip_frames
        from ...capture.compiler import around_compiler

        skip_frames(Announced.__get__, callees=True)  # an optimizer may step in compiled code
        self._around = around_compiler(self._ends.remove, self._ends.put)
        self._ends.put()
        reply(self._path.parent, "armed")

    def gives_way(self) -> bool:
        """Return whether another request may follow: the session is closed, or none came and the command is gone."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._over and (self._path.exists() if self._attached is None else not self._attached.ended):
                return False
            self._end()
            return True
        finally:
            self._lock.release()

    def _step_ended(self, optimizer: Any) -> None:
        """Called on the thread that trains, after each optimizer step and before torch reads its hooks."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._is_plain():
                return
            with DeferSignals(signal.valid_signals()), contain(self._fail):
                self._follow(optimizer)
        finally:
            self._lock.release()

    def _is_plain(self) -> bool:
        """Return whether the session just goes on, as nearly always."""
        attached = self._attached
        if attached is None or os.getpid() != self._pid:
            return False
        return not attached.ended and os.path.exists(self._path) and not attached.has_steps(self._request.steps)

    def _follow(self, optimizer: Any) -> None:
        attached, wanted = self._attached, self._path.exists()
        if os.getpid() != self._pid:  # a fork
            self._end()
        elif attached is None:
            if not wanted:
                self._finish()
            elif self._is_due():
                self._open(optimizer)
        elif attached.ended or not wanted or attached.has_steps(self._request.steps):
            attached.close()
            stays = attached.leave(self._finders)
            self._finish(stays=stays)

    def _is_due(self) -> bool:
        self._number += 1
        if not self._request.waits:
            return True
        try:
            due = int((self._path.parent / START).read_text(encoding="utf-8"))
        except FileNotFoundError:
            reply(self._path.parent, "step", number=self._number, at_ns=monotonic_ns())
            return False
        if self._number > due:
            reply(self._path.parent, "failed", reason="its steps are too short to begin together with the other ranks")
            self._end()
        return self._number == due

    def _open(self, optimizer: Any) -> None:
        from .opening import find_trained, open_attached

        trained = find_trained(optimizer, self._called)
        if not trained.models and self._calls is None and gc.get_freeze_count():
            self._calls = Announced(sys.modules["torch.nn"].Module, "__call__", self._called.append)
            self._calls.put()  # the models of a frozen heap are seen where they are called
            return
        self._forget_calls()
        self._attached = open_attached(self._request, self._path.parent, trained)
        reply(self._path.parent, "recording", folder=self._attached.folder)

    def _fail(self, error: Exception) -> None:
        text = str(error) if isinstance(error, AutoprofError) else describe(error)
        reply(self._path.parent, "failed", reason=text)
        self._end()

    def _finish(self, **facts: Any) -> None:
        self._end()
        reply(self._path.parent, "closed", **facts)

    def _end(self) -> None:
        self._over = True
        if self._around is not None:
            self._around.remove()
        self._ends.remove()
        self._forget_calls()
        if self._added in sys.path:
            sys.path.remove(self._added)

    def _forget_calls(self) -> None:
        if self._calls is not None:
            self._calls.remove()
        self._called.clear()
