"""Find the variables that keep more tensors, or longer autograd graphs, as the run goes on.

A variable that grows at each look is named with the function or class that holds it. The variables are those of the
functions that run now and of the program's modules, and whatever they lead to: attributes, elements, cells of closures.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from heapq import heappop, heappush
from itertools import islice
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, Literal, NamedTuple

import torch
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from ..base.containers import builtin_base
from ..base.process.gc_paused import GcPaused
from ..base.signals import DeferSignals
from ._call_table import MAX_FRAMES, file_owner

MAX_NODES: Final = 4_000
"""Operations of all graphs together that a look follows to the oldest ones; it takes some milliseconds."""
MAX_OF_ONE: Final = 1_000
"""Those of one graph. The oldest are followed first, so a sum over a thousand steps is followed to its first one."""
MAX_PLACES: Final = 5_000
"""Objects, containers and functions that a look goes into; it takes some milliseconds."""
FIRST_ELEMENTS: Final = (8, 32, 64)
"""First elements of a container that are looked at; those of containers in it come before."""
_PLAIN: Final = {int, float, str, bytes, complex, bool, type(None)}
_ROLES: Final = (
    *(torch.Tensor, dict, list, tuple, set, deque, _lru_cache_wrapper, FunctionType),
    *(Module, Optimizer, DataLoader, Dataset),
)
"""The classes whose objects are looked at, beside the program's own."""
_OTHERS: Final = {*sys.stdlib_module_names, "torch", "numpy", "autoprof"}
"""Packages whose modules are not looked at, without a look at their files."""
MIN_GROWTH: Final = 4
"""Elements, or operations, by which a variable has to grow before it is named."""

Kind = Literal["graph", "tensors"]


@dataclass(frozen=True, slots=True)
class KeptTensors:
    """A variable that grows: its name, the first line of the function or class that holds it, and its size."""

    variable: str
    file: str
    line: int
    kind: Kind
    """Whether it is one tensor with the graph of many steps, or a container."""
    count: int
    """Operations from the oldest to the newest of the graph, or elements of the container that are no numbers."""


_Source = CodeType | type | None
"""The function or the class whose variable it is; None of a module's."""
_Key = tuple[str, str, _Source]
"""What tells a variable from others: its name, its file, and whose it is."""
_Place = tuple[str, Mapping[str, Any], str, _Source]
"""Variables that a look goes through: what their names begin with, they, their file, and whose they are."""


class _Holder(NamedTuple):
    """A variable that holds something, with the identity of its value."""

    key: _Key
    identity: int
    kind: Kind
    size: int


class _Seen(NamedTuple):
    """A variable at the first look since it was last smaller, and at the last look."""

    first_step: int
    first_count: int
    last_step: int
    kept: _Holder

    @property
    def grows(self) -> bool:
        """Whether it has grown in at least every fourth step: validation comes in some steps only."""
        return self.kept.size - self.first_count >= max(MIN_GROWTH, (self.last_step - self.first_step) / 4)


class KeptTensorsProbe:
    """Remember the size of each variable. For the training thread, between two steps."""

    def __init__(self) -> None:
        self._seen: dict[_Key, _Seen] = {}
        self._places: dict[int, _Key] = {}
        """The keys of the last look by the identity of the object."""
        self._known, self._others = 0, set(_OTHERS)
        self._modules: dict[str, str] = {}
        """The files of the program's modules."""

    def look(self, frame: FrameType | None, step: int) -> None:
        """Measure the variables of a frame, of those that called it, and of the program's modules."""
        with DeferSignals(), GcPaused():  # collecting takes longer than the look
            self._measure(frame, step)

    def _measure(self, frame: FrameType | None, step: int) -> None:
        found: dict[_Key, _Holder] = {}
        places = {}
        for one in _Walk(self._roots(frame), self._modules):
            # The object may be known by another function's name for it.
            key = one.key if one.key in self._seen else self._places.get(one.identity, one.key)
            found[key], places[one.identity] = one, key
        self._places = places
        for key, kept in found.items():
            before = self._seen.get(key)
            if before is None or kept.size < before.kept.size:
                before = _Seen(step, kept.size, step, kept)
            self._seen[key] = before._replace(last_step=step, kept=kept)
        for key in self._seen.keys() - found.keys():
            if not self._seen[key].grows:  # what a function kept is known after it has returned
                del self._seen[key]

    def growing(self) -> tuple[KeptTensors, ...]:
        """Return the variables that have grown at each look, the largest first."""
        grown = sorted((one.kept for one in self._seen.values() if one.grows), key=lambda one: -one.size)[:3]
        return tuple(KeptTensors(one.key[0], *_place_of(one.key), one.kind, one.size) for one in grown)

    def _roots(self, frame: FrameType | None) -> Iterator[_Place]:
        """Yield the variables of the program's functions that run, and of its modules, sought when there are more."""
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            if file_owner(code.co_filename) == "user":
                yield ("", frame.f_locals, code.co_filename, code)
                yield ("", frame.f_globals, code.co_filename, code)
            frame = frame.f_back
        if len(sys.modules) != self._known:
            self._known = len(sys.modules)
            for name in list(sys.modules):  # a pair for each would be due for collection right behind the look
                known = name.partition(".")[0] in self._others
                file = None if known else getattr(sys.modules.get(name), "__file__", None)
                if file and file_owner(file) == "user":
                    self._modules[name] = file
                elif file:  # the modules inside it are not the program's either
                    self._others.add(name)
        for name, file in self._modules.items():
            if name in sys.modules:
                prefix = "" if name == "__main__" else f"{name.rpartition('.')[2]}."
                yield (prefix, vars(sys.modules[name]), file, None)


def _attributes(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object; none where its class has them and does not show them, as some in C do."""
    try:
        held: Mapping[str, Any] = vars(value)
    except TypeError:
        held = {}
    return held


class _Walk:
    """The variables that hold something, from some places on and the nearest first; each object once.

    It leads through containers, objects of the program's own, models, optimizers, loaders, data sets, and the cells of
    closures.
    """

    def __init__(self, roots: Iterable[_Place], modules: Mapping[str, str]) -> None:
        self._waiting = deque(roots)
        self._modules = modules
        self._seen: set[int] = set()
        self._roles: dict[type, type | None] = {}
        self._inside: dict[str, Any] = {}  # the objects in a container that lead on
        self._nodes_left = MAX_NODES

    def __iter__(self) -> Iterator[_Holder]:
        for _ in range(MAX_PLACES):
            if not self._waiting:
                return
            prefix, variables, file, owner = self._waiting.popleft()
            for name, value in list(variables.items()):
                kind = type(value)
                role = self._roles[kind] if kind in self._roles else self._role(kind)
                if role is None or id(value) in self._seen or name.startswith("__"):
                    continue
                self._seen.add(id(value))
                path, source, size = prefix + name, owner, 0
                if role is torch.Tensor:
                    size = self._graph_age(value.grad_fn)
                elif role is list or role is dict:
                    size = self._size(value)
                elif role is _lru_cache_wrapper:
                    size = self._size(_cached_results(value))
                    source = getattr(value.__wrapped__, "__code__", None)
                elif role is not FunctionType:
                    held = _attributes(value)
                    layers = held.get("_modules", {}) if role is Module else {}
                    self._waiting.append((f"{path}.", {**layers, **held}, file, kind))
                elif value.__closure__ and file_owner((code := value.__code__).co_filename) != "autoprof":
                    cells = zip(code.co_freevars, map(gc.get_referents, value.__closure__), strict=True)
                    self._waiting.append(("", {at: one[0] for at, one in cells if one}, code.co_filename, code))
                if self._inside:
                    self._waiting.append((path, self._inside, file, source))
                    self._inside = {}
                if size:
                    yield _Holder((path, file, source), id(value), "graph" if role is torch.Tensor else "tensors", size)

    def _graph_age(self, root: Any) -> int:
        """Return how many operations the thread has recorded since the oldest one that a graph refers to.

        Within one step this is about the same in each step; it grows where graphs of earlier steps are kept. The oldest
        operations are followed first, so that a sum over many steps is followed along the sum.
        """
        if root is None:
            return 0
        newest = oldest = root._sequence_nr()
        seen, waiting = {root}, [(newest, 0, root)]
        while waiting and self._nodes_left and len(seen) < MAX_OF_ONE:
            self._nodes_left -= 1
            number, _, node = heappop(waiting)
            oldest = min(oldest, number)
            for following, _ in node.next_functions:
                if following is not None and following not in seen and following.next_functions:
                    seen.add(following)
                    heappush(waiting, (following._sequence_nr(), len(seen), following))
        return int(newest - oldest)

    def _role(self, kind: type) -> type | None:
        """Return the class as which the objects of a class are looked at; None for those that lead nowhere."""
        role: Any = next((one for one in _ROLES if issubclass(kind, one)), None)
        if role is None and kind.__dictoffset__:
            # Python removes ``__file__`` from ``__main__`` at the script's end, and the last look comes after it.
            file = self._modules.get(kind.__module__) or getattr(sys.modules.get(kind.__module__), "__file__", None)
            role = object if file is not None and file_owner(file) == "user" else None
        self._roles[kind] = list if role in (tuple, set, deque) else role
        return self._roles[kind]

    def _size(self, value: Any, path: str = "", depth: int = 3) -> int:
        """Return how much a value counts: 0 for numbers, texts, and records of these.

        A container counts in full if one of its first elements may be large, and with the containers in it.
        """
        kind = type(value)
        role = self._roles[kind] if kind in self._roles else self._role(kind)
        is_record = hasattr(kind, "__dataclass_fields__") and bool(kind.__dictoffset__)
        if not depth or not (is_record or role is list or role is dict):
            in_dict = role is torch.Tensor and path.endswith("']")
            if role not in (None, torch.Tensor, list, dict) or (in_dict and value.grad_fn is not None):
                self._inside[path] = value
            return 1
        parts, first, count, more = vars(value) if is_record else value, FIRST_ELEMENTS[depth - 1], 0, 0
        base = builtin_base(parts)
        with suppress(RuntimeError):  # another thread changes it
            for name, part in islice(dict.items(parts) if base is dict else enumerate(base.__iter__(parts)), first):
                if type(part) not in _PLAIN:
                    size = self._size(part, f"{path}[{name!r}]" if type(name) in _PLAIN else path, depth - 1)
                    is_list = isinstance(part, (list, set, deque))
                    count += bool(size or is_list)
                    more += max(size - 1, 0) if is_list or isinstance(part, dict) else 0
        length = base.__len__(parts)
        return (length if count and length > first else count) + more


def _cached_results(function: Any) -> dict[Any, Any]:
    """Return the results that a function with an unlimited ``functools.cache`` keeps."""
    kept = (one for one in gc.get_referents(function) if isinstance(one, dict) and "__wrapped__" not in one)
    return next(kept, {}) if function.cache_parameters()["maxsize"] is None else {}


def _place_of(key: _Key) -> tuple[str, int]:
    """Return the file and the first line of the function whose variable it is, or of its class's ``__init__``.

    Of a module's variable, and of an object of another package, there is the file alone: its line is 0.
    """
    _, file, source = key
    code = source if isinstance(source, CodeType) else getattr(getattr(source, "__init__", None), "__code__", None)
    if code is None or file_owner(code.co_filename) != "user":
        return file, 0
    return code.co_filename, code.co_firstlineno
