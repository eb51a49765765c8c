"""Find the variables that keep more tensors, or longer autograd graphs, as the run goes on.

A variable that grows at each look is named with the line that adds to it. The variables are those of the functions
that run now, of their modules, and the attributes of their ``self``.
"""

from __future__ import annotations

import dis
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from types import CodeType, FrameType
from typing import Any, Final, Literal

import torch

from ._call_table import MAX_FRAMES, file_owner

MAX_NODES: Final = 5_000
"""Operations of a graph that are followed to its oldest one; a look takes some milliseconds."""
MAX_ELEMENTS: Final = 10_000
"""Elements of a container that are looked at."""
_ADDING: Final = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "put"})
LOOKS: Final = 2
"""Looks in a row at which a variable has to be larger than at the one before."""


@dataclass(frozen=True, slots=True)
class KeptTensors:
    """A variable that grows: its name, the line that adds to it, and its size."""

    variable: str
    file: str
    line: int
    kind: Literal["graph", "tensors"]
    """Whether it is one tensor with the graph of many steps, or a container of tensors."""
    count: int
    """Operations from the oldest to the newest of the graph, or tensors in the container."""


@dataclass(slots=True)
class _Growing:
    kept: KeptTensors
    looks: int = 0


class KeptTensorsProbe:
    """Remember the size of each variable at the last look. For the training thread, between two steps."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str, int], _Growing] = {}

    def look(self, frame: FrameType | None) -> None:
        """Measure the variables of a frame and of those that called it."""
        found = {(one.variable, one.file, one.line): one for one in _holders(frame)}
        for key, kept in found.items():
            before = self._sizes.get(key)
            grew = before is not None and kept.count > before.kept.count
            self._sizes[key] = _Growing(kept, before.looks + 1 if before is not None and grew else 0)
        for key in self._sizes.keys() - found.keys():
            if self._sizes[key].looks < LOOKS:  # a function that has returned is not forgotten if it kept much
                del self._sizes[key]

    def growing(self) -> tuple[KeptTensors, ...]:
        """Return the variables that grew at each of the last looks, the largest first."""
        grown = [one.kept for one in self._sizes.values() if one.looks >= LOOKS]
        return tuple(sorted(grown, key=lambda one: -one.count)[:3])


def _holders(frame: FrameType | None) -> Iterator[KeptTensors]:
    seen: set[int] = set()
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        if file_owner(code.co_filename) == "user":
            own = frame.f_locals
            yield from _measure(own, "", code, seen)
            holder = own.get("self")
            if holder is not None and not isinstance(holder, torch.nn.Module):
                yield from _measure(getattr(holder, "__dict__", {}), "self.", code, seen)
            if own is not frame.f_globals:
                yield from _measure(frame.f_globals, "", code, seen)
        frame = frame.f_back


def _measure(variables: Mapping[str, Any], prefix: str, code: CodeType, seen: set[int]) -> Iterator[KeptTensors]:
    for name, value in list(variables.items()):
        if id(value) in seen:
            continue
        kind: Literal["graph", "tensors"] = "graph"
        if isinstance(value, torch.Tensor):
            size = _graph_age(value.grad_fn)
        elif isinstance(value, Collection) and not isinstance(value, (str, bytes)):
            kind, size = "tensors", _tensors_in(value)
        else:
            continue
        seen.add(id(value))
        if size:
            yield KeptTensors(prefix + name, code.co_filename, _line(code, name), kind, size)


def _tensors_in(container: Collection[Any]) -> int:
    """Return the number of tensors in a container, or in the containers in it."""
    count = 0
    with suppress(RuntimeError):  # another thread changes it
        for _, element in zip(range(MAX_ELEMENTS), _values(container), strict=False):
            if isinstance(element, torch.Tensor):
                count += 1
            elif isinstance(element, (list, tuple, dict)):
                count += sum(isinstance(one, torch.Tensor) for one in _values(element))
    return len(container) if count == MAX_ELEMENTS else count


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


def _line(code: CodeType, attribute: str) -> int:
    """Return the line of a function that adds to a variable: ``total = total + …``, ``kept.append(…)``."""
    starts, line = dict(dis.findlinestarts(code)), code.co_firstlineno
    loaded: set[int] = set()
    last = code.co_firstlineno
    adding: list[int] = []
    is_loaded = False
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        if is_loaded and instruction.argval in _ADDING:
            adding.append(line)
        is_loaded = instruction.argval == attribute and instruction.opname.startswith("LOAD_")
        if is_loaded:
            loaded.add(line)
        elif instruction.argval == attribute and instruction.opname.startswith("STORE_"):
            last = line
            if line in loaded:
                adding.append(line)
    return adding[-1] if adding else last
