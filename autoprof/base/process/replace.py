"""Replace functions of other packages while sessions use the replacements, and put the originals back.

All sessions share one replacement of a function, so they may end in any order. A replacement stays in place as long as
a session holds it; its list of listeners changes with each pause and each unsampled step. (Setting and deleting an
attribute of a class at each step would be slow: from Python 3.13 on, a class that changed a thousand times is no longer
cached.)
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from types import FunctionType
from typing import Any, Final, Protocol

import torch

MISSING: Final = object()
"""The value of an attribute that does not exist."""


class Listener(Protocol):
    """An object whose methods are called around each call of a function. Neither method may raise an exception."""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Called before a call, with the values of all arguments; return whether ``leave`` is to be called after it."""
        return False

    def leave(self) -> None:
        """Called after a call."""
        return


Make = Callable[[Any, list[Any]], Any]
"""Make the replacement of a function, given the function and the list of listeners, which changes."""


class Attribute:
    """An attribute of a class, a module or an object; an inherited one is inherited again afterwards.

    ``get`` returns the function or ``MISSING``, ``put`` replaces it, ``put_back`` undoes that.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name, self._had = owner, name, True

    def get(self) -> Any:
        own = self._owner.__dict__.get(self._name, MISSING)  # static look-up takes some microseconds
        return inspect.getattr_static(self._owner, self._name, MISSING) if own is MISSING else own

    def put(self, value: Any) -> None:
        self._had = self._name in vars(self._owner)
        setattr(self._owner, self._name, value)

    def put_back(self, value: Any) -> None:
        setattr(self._owner, self._name, value) if self._had else delattr(self._owner, self._name)


class Cell:
    """The closure cell of a decorated function of torch: code that imported it by name calls through the same cell."""

    def __init__(self, function: Any) -> None:
        self._cell = function.__closure__[function.__code__.co_freevars.index("func")]

    def get(self) -> Any:
        return self._cell.cell_contents

    def put(self, value: Any) -> None:
        self._cell.cell_contents = value

    put_back = put


def place_of(owner: Any, name: str) -> Attribute | Cell:
    """Return the cell of a function that a decorator of torch holds as ``func``; its attribute for any other."""
    with suppress(AttributeError, ValueError, TypeError):
        return Cell(getattr(owner, name))
    return Attribute(owner, name)


class InCompiler(Enum):
    """The state of a replacement while ``torch.compile`` works, and afterwards."""

    ABSENT = "absent"
    """The original is back while torch compiles."""
    RETIRED = "retired"
    """The original is back for good once torch compiles: graphs guard the identity of the function, and another in its
    place would recompile them at each call."""
    PRESENT = "present"
    """The replacement stays."""


class Replacement:
    """One function, replaced as long as a session holds it.

    ``place`` has the methods of ``Attribute``. ``make`` makes the replacement; the default calls the listeners before
    and after each call. Several replacements may share one list of ``listeners``.
    """

    def __init__(
        self,
        place: Any,
        make: Make | None = None,
        *,
        in_compiler: InCompiler = InCompiler.ABSENT,
        listeners: list[Any] | None = None,
    ) -> None:
        self.listeners: list[Any] = [] if listeners is None else listeners
        self.shares_listeners = listeners is not None
        self._place = place
        self._make = make or call_listeners
        self._in_compiler = in_compiler
        self._holders: list[object] = []
        self._ours: Any = None
        self._original: Any = None
        self._made: tuple[Any, list[Any], Any] | None = None

    @property
    def in_place(self) -> bool:
        """Whether the function is replaced, or held and to be replaced again."""
        return bool(self._holders) or self._ours is not None

    def hold(self, holder: object) -> None:
        """Replace the function, unless that is done."""
        if holder not in self._holders:
            self._holders.append(holder)
        if self not in held:
            held.append(self)
        self.put()

    def release(self, holder: object) -> None:
        """Put the original back once no session holds it; one that another package has wrapped stays, idle."""
        if holder in self._holders:
            self._holders.remove(holder)
        if not self._holders:
            if self in held:
                held.remove(self)
            if self._ours is not None and not self.put_back():
                self._ours = self._made = None
                if not self.shares_listeners:
                    self.listeners = []

    def listen(self, listener: Any) -> None:
        """Add a listener."""
        if listener not in self.listeners:
            self.listeners.append(listener)

    def ignore(self, listener: Any) -> None:
        """Remove a listener; the replacement stays."""
        if listener in self.listeners:
            self.listeners.remove(listener)

    def put(self) -> None:
        """Put the replacement in place if a session holds it."""
        if not self._holders or self._ours is not None:
            return
        if has_compiled() and self._in_compiler is InCompiler.RETIRED:
            return
        self._original = self._place.get()
        self._ours = self._replacement(self._original)
        self._place.put(self._ours)

    def put_back(self, *, compiling: bool = False) -> bool:
        """Put the original back; return False where another package's wrapper is in the way."""
        if self._ours is None or (compiling and self._in_compiler is InCompiler.PRESENT):
            return True
        if self._place.get() is not self._ours:
            return False
        self._place.put_back(self._original)
        self._ours = self._original = None
        return True

    def _replacement(self, original: Any) -> Any:
        # The same object for the same function: dynamo recompiles where a global is another object than before.
        if self._made is None or self._made[0] is not original or self._made[1] is not self.listeners:
            ours = self._make(original, self.listeners)
            if type(ours) is FunctionType:
                skip_frames(ours)
            self._made = original, self.listeners, ours
        return self._made[2]


held: Final[list[Replacement]] = []
"""The replacements that sessions hold now."""
_compiled = False


def has_compiled() -> bool:
    """Return whether torch has compiled anything in this process: its guards may name the functions replaced here."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return _compiled or bool(counters.get("frames"))


def remove_while_compiling() -> None:
    """Put the originals back: torch starts to compile."""
    global _compiled
    _compiled = True
    for replacement in held:
        replacement.put_back(compiling=True)


def restore_after_compiling() -> None:
    """Put the replacements in place again."""
    for replacement in held:
        replacement.put()


def call_listeners(original: Any, listeners: list[Listener]) -> Any:
    """Return a wrapper that calls the listeners around each call and changes nothing."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not listeners:
            return original(*args, **kwargs)
        given = (*args, *kwargs.values()) if kwargs else args
        entered = []
        for listener in listeners[:]:  # before Python 3.12 a comprehension would be one more call
            if listener.enter(original, given):
                entered.append(listener)  # noqa: PERF401
        try:
            return original(*args, **kwargs)
        finally:
            for listener in reversed(entered):
                listener.leave()

    return wrapper


def call_after(original: Any, listeners: list[Callable[[Any], object]]) -> Any:
    """Return a wrapper that calls the listeners with the first argument after each call that returned."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        for listener in listeners[:]:
            listener(args[0])
        return result

    return wrapper


def skip_frames(function: Any, *, callees: bool = False) -> None:
    """Exclude the frames of a function from ``torch.compile``; with ``callees`` also those of functions it calls."""
    code: Any = getattr(function, "__code__", None)
    frames: Any = torch._C._dynamo.eval_frame
    with suppress(Exception):  # private names, which differ between versions of torch
        if hasattr(frames, "skip_code"):
            frames.skip_code(code)
        else:
            skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip if callees else default))


def never_compile(function: Any, *, callees: bool = False) -> None:
    """Exclude a function from ``torch.compile``, also where compiled code calls it after a graph break.

    Its frames are skipped, with ``callees`` also those of functions it calls; and where it was put on the stack before
    the break, the mark of ``torch.compiler.disable`` prevents tracing, as if it were written in C.
    """
    function._torchdynamo_disable = True
    skip_frames(function, callees=callees)


class CallProbe:
    """A ``Probe`` that calls listeners around each call of the replaced functions while it is attached."""

    def __init__(self, pairs: Iterable[tuple[Replacement, Any]]) -> None:
        self._pairs = tuple(pairs)
        heard: dict[tuple[int, int], tuple[Replacement, Any]] = {}
        for replacement, listener in self._pairs:
            one_list = replacement.listeners if replacement.shares_listeners else replacement
            heard[id(one_list), id(listener)] = replacement, listener
        self._heard = tuple(heard.values())
        """One of the replacements for each list of listeners: all that share a list have the same ones."""
        self._holds = False
        for _, listener in self._pairs:
            for method in (listener.enter, listener.leave):
                skip_frames(method, callees=True)

    def attach(self) -> None:
        """Replace the functions, and add the listeners."""
        if not self._holds:
            self._holds = True
            for replacement, _ in self._pairs:
                replacement.hold(self)
        for replacement, listener in self._heard:
            replacement.listen(listener)

    def detach(self) -> None:
        """Remove the listeners; the replacements stay, idle."""
        for replacement, listener in self._heard:
            replacement.ignore(listener)

    def remove(self) -> None:
        """Put the originals back once no session needs the replacements."""
        for replacement, listener in self._pairs:
            replacement.ignore(listener)
            replacement.release(self)
        self._holds = False
