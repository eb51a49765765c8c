"""Close sessions at exit and on SIGTERM, abandon them in a fork, and know which session owns which model."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any, Final, Protocol

from torch import nn

from ..signals import NOT_DEFERRED, has_no_handler, is_pythons


class Closable(Protocol):
    """The part of a session that the end of the process needs."""

    @property
    def busy(self) -> bool:
        """Whether the session's own code is running: closing it now would find it half changed."""

    def end(self, how: str) -> None:
        """Close the session and note how it ended."""

    def abandon(self) -> None:
        """Record nothing more and touch no file: this process is a fork of the session's own."""


CLOSED: Final = "closed"
"""The end noted for a session that the program closed, or replaced by another on the same model."""
EXIT: Final = "exit"
"""The end noted for a session that the program left open."""
TERMINATED: Final = "SIGTERM"
"""The end noted for a session that this signal closes."""

_open: list[Closable] = []
_owners: weakref.WeakKeyDictionary[nn.Module, Closable] = weakref.WeakKeyDictionary()
_claimed: weakref.WeakKeyDictionary[Closable, tuple[weakref.ref[nn.Module], ...]] = weakref.WeakKeyDictionary()
"""The modules of each open session, its model first."""
_launched: list[Closable] = []
"""The sessions that ``autoprof run`` opened."""
_program_instruments = False
terminated = False
_ends_at_exit = False
_knows_forks = False


def end_owners(modules: Iterable[nn.Module]) -> bool:
    """Close the open sessions that own one of these modules; return whether there was any."""
    owners = {id(owner): owner for module in modules if (owner := _owners.get(module)) is not None}
    for owner in owners.values():
        owner.end(CLOSED)
    return bool(owners)


def end_dropped() -> None:
    """Close the open sessions whose model the program has dropped, as that of the last fold of a cross-validation."""
    for session in _open[:]:
        claimed = _claimed.get(session)
        if claimed is not None and claimed[0]() is None:
            session.end(CLOSED)


def claim(session: Closable, modules: Sequence[nn.Module]) -> None:
    """Note that the session is open and owns these modules, its model first."""
    _start()
    _open.append(session)
    _claimed[session] = tuple(map(weakref.ref, modules))
    for module in modules:
        _owners[module] = session


def session_of(model: nn.Module | None) -> Closable | None:
    """Return the open session that owns this module; without a module, the open one if there is only one."""
    if model is not None:
        return _owners.get(model)
    return _open[0] if len(_open) == 1 else None


def open_sessions() -> int:
    """Return the number of sessions that are open."""
    return len(_open)


def remove_exit_function() -> None:
    """Remove the function that closes sessions at exit, where none is open; Python cannot remove that of forks."""
    global _ends_at_exit
    if not _open:
        atexit.unregister(_end_at_exit)
        _ends_at_exit = False


def mark_launched(session: Closable) -> None:
    """Note that ``autoprof run`` opened this session: it ends where the program opens one itself."""
    _launched.append(session)


def is_launched(session: Closable) -> bool:
    """Return whether ``autoprof run`` opened this session."""
    return session in _launched


def program_has_session() -> bool:
    """Return whether the program has opened a session itself."""
    return _program_instruments


def prefer_program() -> None:
    """Note that the program opens a session itself, and end those of ``autoprof run``."""
    global _program_instruments
    _program_instruments = True
    while _launched:
        _launched.pop().end(CLOSED)


def release(session: Closable) -> None:
    """Remove a closed session and its claims."""
    if session in _launched:
        _launched.remove(session)
    if session in _open:
        _open.remove(session)
    for claimed in _claimed.pop(session, ()):  # not through all owners: another thread may change them meanwhile
        module = claimed()
        if module is not None and _owners.get(module) is session:
            _owners.pop(module, None)
    if not _open:
        _restore_sigterm()


def _restore_sigterm() -> None:
    # A handler that the user's code or a C library installed meanwhile stays.
    ours = signal.getsignal(signal.SIGTERM) is _on_sigterm and is_pythons(signal.SIGTERM)
    if ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _start() -> None:
    global _ends_at_exit, _knows_forks
    if not _ends_at_exit:
        _ends_at_exit = True
        atexit.register(_end_at_exit)
    if not _knows_forks and hasattr(os, "register_at_fork"):
        _knows_forks = True
        os.register_at_fork(after_in_child=_abandon_all)
    main = threading.current_thread() is threading.main_thread()
    # A handler of the user's stays. Without one, SIGTERM would end the process before atexit handlers run.
    if main and has_no_handler(signal.SIGTERM):
        signal.signal(signal.SIGTERM, _on_sigterm)


def _end_at_exit() -> None:
    interrupted = False
    for session in reversed(_open[:]):
        try:
            with contextlib.suppress(Exception):
                session.end(EXIT)
        except KeyboardInterrupt:  # a Ctrl-C during the report: Python would print and ignore it
            interrupted = True
    if interrupted or _ended_by_interrupt():
        _note_interrupt()


def _note_interrupt() -> None:
    """Have the interpreter end with the status of SIGINT, as after a Ctrl-C that nothing handled.

    Python notes such an end where an exception leaves the outermost code. Up to 3.13 it forgets the note where code is
    executed from a string, as by the dataclasses of a module that a report imports.
    """
    hook = sys.excepthook
    absent = [name for name in ("last_type", "last_value", "last_traceback", "last_exc") if not hasattr(sys, name)]
    sys.excepthook = lambda *_error: None  # the program's has shown its interrupt; one of ours is not to be shown
    try:
        ctypes.pythonapi.PyRun_SimpleString(b"raise KeyboardInterrupt")
    finally:
        sys.excepthook = hook
        for name in absent:
            with contextlib.suppress(AttributeError):
                delattr(sys, name)


def _ended_by_interrupt() -> bool:
    """Return whether Ctrl-C ended the program: its traceback then begins with the outermost frame.

    A console inside the program shows an interrupt and goes on. It notes it in the same place, from a frame of its own.
    """
    if getattr(sys, "last_type", None) is not KeyboardInterrupt or hasattr(sys, "ps1"):
        return False
    trace = getattr(sys, "last_traceback", None)
    return trace is not None and trace.tb_frame.f_back is None


def ended_well() -> bool:
    """Return whether no exception ended the program, as far as the interpreter knows when it exits, or ends it now."""
    return not hasattr(sys, "last_type") and sys.exc_info()[0] is None


def _abandon_all() -> None:
    for session in _open:
        with contextlib.suppress(Exception):
            session.abandon()
    _open.clear()
    _owners.clear()
    _launched.clear()
    _restore_sigterm()  # with our handler, a child in a long C call would not end on SIGTERM at once


def _on_sigterm(number: int, frame: FrameType | None) -> Any:
    global terminated
    terminated = True
    if not any(session.busy for session in _open):
        finish_termination()


NOT_DEFERRED.append(_on_sigterm)


def finish_termination() -> None:
    """End the process as SIGTERM would have, after closing every session; does nothing when none was received."""
    if not terminated:
        return
    try:
        for session in reversed(_open[:]):
            with contextlib.suppress(Exception):
                session.end(TERMINATED)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        else:  # only the main thread may set handlers: it finds nothing left to close
            _open.clear()
        os.kill(os.getpid(), signal.SIGTERM)
