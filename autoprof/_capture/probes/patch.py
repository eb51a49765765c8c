"""Wrap a function of torch's while a session wants to hear of its calls, and put the original back.

Sessions share one wrapper of a function, so that they may end in any order. It stays for as long as one of them is
open; whom it tells changes with each pause and each step that is not sampled. (To set and delete an attribute of a
class again and again is no way: from Python 3.13 on a class that changed a thousand times is cached no more.)
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any, Protocol

import torch

from ..marks import ENTER, LEAVE
from ..recorder import Recorder
from .handle import Handle

Make = Callable[[Any, list[Any]], Any]
"""Make the wrapper of a function, given it and the list of those to be told, which changes."""


class Listener(Protocol):
    """Who is told of calls. Neither method raises."""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Take word that a call begins; say whether its end is to be told."""

    def leave(self) -> None:
        """Take word that it is over."""


class Slot(Protocol):
    """Where a function is held."""

    def get(self) -> Any:
        """Return what is there."""

    def put(self, value: Any) -> None:
        """Put a wrapper there."""

    def put_back(self, value: Any) -> None:
        """Put back what ``get`` returned before ``put``."""


class Attribute:
    """An attribute of a class or a module; one that a class inherits is inherited again afterwards."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name, self._had = owner, name, True

    def get(self) -> Any:
        return inspect.getattr_static(self._owner, self._name)

    def put(self, value: Any) -> None:
        self._had = self._name in vars(self._owner)
        setattr(self._owner, self._name, value)

    def put_back(self, value: Any) -> None:
        setattr(self._owner, self._name, value) if self._had else delattr(self._owner, self._name)


class Cell:
    """The function inside a decorated one of torch's: whoever imported that by its name calls through the same cell."""

    def __init__(self, function: Any, name: str = "func") -> None:
        self._cell = function.__closure__[function.__code__.co_freevars.index(name)]

    def get(self) -> Any:
        return self._cell.cell_contents

    def put(self, value: Any) -> None:
        self._cell.cell_contents = value

    put_back = put


def holder_of(owner: Any, name: str) -> Slot:
    """Return the cell of a function that a decorator of torch's holds as ``func``, or else its attribute."""
    with suppress(AttributeError, ValueError, TypeError):
        return Cell(getattr(owner, name))
    return Attribute(owner, name)


class Patch:
    """One function, wrapped as long as a session holds it. ``make`` decides what its calls do.

    ``inlined`` is a function that ``torch.compile`` traces into. Its graphs are guarded by the function's own code, so
    a wrapper that comes back after a compilation would have them compiled anew at each call: it stays away.
    """

    def __init__(self, slot: Slot, make: Make | None = None, *, inlined: bool = False) -> None:
        self._slot = slot
        self._make = make or tell
        self._inlined = inlined
        self._holders: list[object] = []
        self._listeners: list[Any] = []
        self._ours: Any = None
        self._inner: Any = None

    @property
    def in_place(self) -> bool:
        """Whether the function is wrapped, or to be."""
        return bool(self._holders) or self._ours is not None

    def hold(self, holder: object) -> None:
        """Wrap the function, unless that is done."""
        if holder not in self._holders:
            self._holders.append(holder)
        if self not in _held:
            _held.append(self)
        self.wrap()

    def drop(self, holder: object) -> None:
        """Put the function back when nobody holds it any more; under a wrapper of somebody else's ours stays, idle."""
        if holder in self._holders:
            self._holders.remove(holder)
        if not self._holders:
            if self in _held:
                _held.remove(self)
            if self._ours is not None and not self._take():
                self._ours, self._listeners = None, []

    def listen(self, listener: Listener) -> None:
        """Tell this one of calls from now on."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def ignore(self, listener: Listener) -> None:
        """Tell this one no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def wrap(self) -> None:
        """Wrap the function if somebody holds it."""
        if self._holders and self._ours is None and not (self._inlined and _has_compiled()):
            self._put()

    def unwrap(self) -> None:
        """Put the function back for a while, where it can be."""
        if self._ours is not None:
            self._take()

    def _put(self) -> None:
        self._inner = self._slot.get()
        ours = self._make(self._inner, self._listeners)
        skip_frames(ours)
        self._ours = ours
        self._slot.put(ours)

    def _take(self) -> bool:
        if self._slot.get() is not self._ours:
            return False
        self._slot.put_back(self._inner)
        self._ours = self._inner = None
        return True


_held: list[Patch] = []


def _has_compiled() -> bool:
    """Tell whether torch has compiled anything in this process that it still has."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(getattr(utils, "counters", {}).get("frames"))


def step_aside() -> None:
    """Put every function back for a while: torch compiles."""
    for patch in _held:
        patch.unwrap()


def come_back() -> None:
    """Wrap them again."""
    for patch in _held:
        patch.wrap()


def tell(inner: Any, listeners: list[Listener]) -> Any:
    """Return the wrapper that tells all listeners of each call, and changes nothing."""

    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not listeners:
            return inner(*args, **kwargs)
        told = [listener for listener in listeners if listener.enter(inner, args)]
        try:
            return inner(*args, **kwargs)
        finally:
            for listener in reversed(told):
                listener.leave()

    return wrapper


def skip_frames(function: Any, *, below: bool = False) -> None:
    """Have ``torch.compile`` run this function as it is, between a graph and the next; ``below``: with all it calls."""
    code: Any = getattr(function, "__code__", None)
    frames: Any = torch._C._dynamo.eval_frame
    with suppress(Exception):  # names of torch's own, which differ between its versions
        if hasattr(frames, "skip_code"):
            frames.skip_code(code)
        else:
            skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip if below else default))


class SpanListener:
    """Make a span of each call of the training thread; a call inside a call of the same listener is part of it."""

    def __init__(self, recorder: Recorder, code: int, wanted: Callable[[tuple[Any, ...]], bool] | None = None) -> None:
        self._recorder = recorder
        self._code = code
        self._wanted = wanted
        self._inside = -1
        """The serial of the step in which a call is under way: what a Ctrl-C leaves here says nothing of later ones."""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        recorder = self._recorder
        if self._inside == recorder.serial or get_ident() != recorder.thread or torch.compiler.is_dynamo_compiling():
            return False
        if self._wanted is not None and not self._wanted(args):
            return False
        self._inside = recorder.serial
        recorder.mark(self._code | ENTER)
        return True

    def leave(self) -> None:
        self._inside = -1
        self._recorder.mark(self._code | LEAVE)


class PatchProbe:
    """What one session hears of patched functions: told while it records."""

    def __init__(self, pairs: Iterable[tuple[Patch, Any]], handle: Handle) -> None:
        self._pairs: Sequence[tuple[Patch, Any]] = tuple(pairs)
        self._holds = False
        for patch, listener in self._pairs:
            handle.add(functools.partial(patch.drop, self))
            handle.add(functools.partial(patch.ignore, listener))
            for method in (listener.enter, listener.leave):
                skip_frames(method, below=True)

    def attach(self) -> None:
        """Be told from now on."""
        if not self._holds:
            self._holds = True
            for patch, _ in self._pairs:
                patch.hold(self)
        for patch, listener in self._pairs:
            patch.listen(listener)

    def detach(self) -> None:
        """Be told no more."""
        for patch, listener in self._pairs:
            patch.ignore(listener)
