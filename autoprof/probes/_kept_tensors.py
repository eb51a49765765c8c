"""Find the variables that keep more tensors, or longer autograd graphs, as the run goes on.

A variable that grows at each look is named with the line that adds to it. The variables are those of the functions
that run now, of the program's modules, and the attributes of their objects.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from functools import _lru_cache_wrapper
from heapq import heappop, heappush
from types import CodeType, FrameType
from typing import Any, Final, Literal, NamedTuple

import torch

from ._call_table import MAX_FRAMES, file_owner

MAX_NODES: Final = 5_000
"""Operations of a graph that are followed to its oldest one; a look takes some milliseconds."""
MAX_DEPTH: Final = 2
"""Objects inside objects whose attributes are looked at."""
MAX_ELEMENTS: Final = 10_000
"""Elements of a container that are looked at."""
_ADDING: Final = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "put"})
_OTHERS: Final = {*sys.stdlib_module_names, "torch", "numpy", "autoprof"}
"""Packages whose modules are not looked at, without a look at their files."""
MIN_GROWTH: Final = 4
"""Elements, or operations, by which a variable has to grow before it is named."""


Kind = Literal["graph", "tensors"]


@dataclass(frozen=True, slots=True)
class KeptTensors:
    """A variable that grows: its name, the line that adds to it, and its size."""

    variable: str
    file: str
    line: int
    kind: Kind
    """Whether it is one tensor with the graph of many steps, or a container."""
    count: int
    """Operations from the oldest to the newest of the graph, or elements of the container that are no numbers."""


class _Holder(NamedTuple):
    """A variable that holds something: the identity of its value, and the functions that may add to it."""

    identity: int
    variable: str
    file: str
    codes: Sequence[CodeType]
    kind: Kind
    size: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Return the name, the file, and the first line of the function."""
        return self.variable, self.file, self.codes[0].co_firstlineno if self.codes else 0

    def described(self) -> KeptTensors:
        """Return the variable with its line, which takes long to find."""
        file, line = _place(self.codes, self.variable.rpartition(".")[2], self.file)
        return KeptTensors(self.variable, file, line, self.kind, self.size)


class _Seen(NamedTuple):
    """A variable at the first look since it was last smaller, and at the last look."""

    first_step: int
    first_count: int
    last_step: int
    kept: _Holder

    @property
    def grows(self) -> bool:
        """Whether it has grown in at least every second step."""
        growth = self.kept.size - self.first_count
        return growth >= max(MIN_GROWTH, (self.last_step - self.first_step) / 2)


class KeptTensorsProbe:
    """Remember the size of each variable. For the training thread, between two steps."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, int], _Seen] = {}
        self._places: dict[int, tuple[str, str, int]] = {}
        """The keys of the last look by the identity of the object."""

    def look(self, frame: FrameType | None, step: int) -> None:
        """Measure the variables of a frame, of those that called it, and of the program's modules."""
        found: dict[tuple[str, str, int], _Holder] = {}
        places = {}
        for one in _holders(frame):
            key = one.key
            if key not in self._seen:  # the object may be known by another function's name for it
                key = self._places.get(one.identity, key)
            found[key], places[one.identity] = one, key
        self._places = places
        for key, kept in found.items():
            before = self._seen.get(key)
            if before is None or kept.size < before.kept.size:
                self._seen[key] = _Seen(step, kept.size, step, kept)
            else:
                self._seen[key] = before._replace(last_step=step, kept=kept)
        for key in self._seen.keys() - found.keys():
            if not self._seen[key].grows:  # what a function kept is known after it has returned
                del self._seen[key]

    def growing(self) -> tuple[KeptTensors, ...]:
        """Return the variables that have grown at each look, the largest first."""
        grown = [one.kept for one in self._seen.values() if one.grows]
        return tuple(one.described() for one in sorted(grown, key=lambda one: -one.size)[:3])


def _holders(frame: FrameType | None) -> Iterator[_Holder]:
    seen: set[int] = set()
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if file_owner(code.co_filename) == "user":
            yield from _measure(frame.f_locals, "", code.co_filename, [code], seen)
            yield from _measure(frame.f_globals, "", code.co_filename, [code], seen)
        frame = frame.f_back
    for name, module in list(sys.modules.items()):
        file = None if name.partition(".")[0] in _OTHERS else getattr(module, "__file__", None)
        if file and file_owner(file) == "user":
            yield from _measure(vars(module), f"{name.rpartition('.')[2]}.", file, [], seen)


def _measure(
    variables: Mapping[str, Any], prefix: str, file: str, codes: Sequence[CodeType], seen: set[int], depth: int = 0
) -> Iterator[_Holder]:
    """Yield the variables that hold something, and the attributes of the program's own objects among them."""
    for name, value in list(variables.items()):
        if id(value) in seen or (name.startswith("__") and name.endswith("__")):
            continue
        seen.add(id(value))
        kind: Kind = "graph"
        if isinstance(value, torch.Tensor):
            size = _graph_age(value.grad_fn)
        elif isinstance(value, (list, dict, set, deque)):
            kind, size = "tensors", _large_in(value)
        elif isinstance(value, _lru_cache_wrapper):
            kind, size = "tensors", _large_in(_cached_results(value))
            codes = [value.__wrapped__.__code__] if hasattr(value.__wrapped__, "__code__") else []
        else:
            if depth < MAX_DEPTH and _is_own(value):
                yield from _measure(vars(value), f"{prefix}{name}.", file, _methods(value), seen, depth + 1)
                if isinstance(value, torch.nn.Module):
                    for inner, module in value.named_modules(prefix=f"{prefix}{name}"):
                        yield from _measure(vars(module), f"{inner}.", file, _methods(module), seen, MAX_DEPTH)
            continue
        if size:
            yield _Holder(id(value), prefix + name, file, codes, kind, size)


def _is_own(value: Any) -> bool:
    """Return whether a value is an object of one of the program's classes, or a model."""
    if isinstance(value, torch.nn.Module):
        return True
    defined = sys.modules.get(type(value).__module__)
    file = getattr(defined, "__file__", None)
    return hasattr(value, "__dict__") and file is not None and file_owner(file) == "user"


def _large_in(container: Collection[Any]) -> int:
    """Return the number of elements that may be large."""
    count = 0
    with suppress(RuntimeError):  # another thread changes it
        for _, element in zip(range(MAX_ELEMENTS), _values(container), strict=False):
            count += _may_be_large(element)
    return len(container) if count == MAX_ELEMENTS else count


def _may_be_large(element: Any, depth: int = 3) -> bool:
    """Return whether an element is more than numbers, texts, and records of these."""
    if isinstance(element, (int, float, str, bytes, complex, type(None))):
        return False
    is_record = is_dataclass(element) and hasattr(element, "__dict__")
    if not depth or not (is_record or isinstance(element, (tuple, dict))):
        return True
    parts = _values(vars(element) if is_record else element)
    return any(_may_be_large(part, depth - 1) for part in parts)


def _cached_results(function: Any) -> dict[Any, Any]:
    """Return the results that a function with an unlimited ``functools.cache`` keeps."""
    if function.cache_parameters()["maxsize"] is not None:
        return {}
    kept = (one for one in gc.get_referents(function) if isinstance(one, dict) and "__wrapped__" not in one)
    return next(kept, {})


def _values(container: Collection[Any]) -> Collection[Any]:
    return container.values() if isinstance(container, Mapping) else container


def _graph_age(root: Any) -> int:
    """Return how many operations the thread has recorded since the oldest one that a graph refers to.

    Within one step this is about the same in each step; it grows where graphs of earlier steps are kept. The oldest
    operations are followed first, so that a sum over many steps is followed along the sum.
    """
    if root is None:
        return 0
    newest = oldest = root._sequence_nr()
    seen, waiting = {root}, [(newest, 0, root)]
    while waiting and len(seen) < MAX_NODES:
        number, _, node = heappop(waiting)
        oldest = min(oldest, number)
        for following, _ in node.next_functions:
            if following is not None and following not in seen and following.next_functions:
                seen.add(following)
                heappush(waiting, (following._sequence_nr(), len(seen), following))
    return int(newest - oldest)


def _methods(value: Any) -> list[CodeType]:
    """Return the code of the methods of an object's class, as far as the program wrote it."""
    functions = [vars(each).values() for each in type(value).__mro__]
    codes = [
        code for several in functions for one in several if isinstance(code := getattr(one, "__code__", None), CodeType)
    ]
    return [code for code in codes if file_owner(code.co_filename) == "user"]


def _place(codes: Sequence[CodeType], variable: str, file: str) -> tuple[str, int]:
    """Return the file and the line that adds to a variable, or sets it, or defines the cached function; else line 0."""
    places = [(code.co_filename, *_lines(code, variable)) for code in codes]
    return (
        next(((at, adding) for at, adding, _ in places if adding), None)
        or next(((at, setting) for at, _, setting in places if setting), None)
        or next(((code.co_filename, code.co_firstlineno) for code in codes if code.co_name == variable), None)
        or (file, 0)
    )


def _lines(code: CodeType, variable: str) -> tuple[int, int]:
    """Return the lines of a function that add to a variable, ``total = total + …``, ``kept.append(…)``, and set it."""
    starts, line = dict(dis.findlinestarts(code)), code.co_firstlineno
    loaded: set[int] = set()
    setting = line if variable in code.co_varnames[: code.co_argcount] else 0
    adding, is_loaded = 0, False
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        if is_loaded and instruction.argval in _ADDING:
            adding = line
        is_loaded = instruction.argval == variable and instruction.opname.startswith("LOAD_")
        if is_loaded:
            loaded.add(line)
        elif instruction.argval == variable and instruction.opname.startswith("STORE_"):
            setting = line
            if line in loaded:
                adding = line
    return adding, setting
