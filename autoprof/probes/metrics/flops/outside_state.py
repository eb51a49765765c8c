"""Undo the writes of a forward to Python objects outside of the model's copy.

The copy of a model has its own parameters, buffers and attributes. A forward may also write to globals, classes and
caches: a fake tensor that stays there would break the next real step.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper
from operator import is_not
from types import CellType, FunctionType
from typing import Any, Final, NamedTuple

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from ....base.containers import builtin_base

LIBRARIES: Final = frozenset({"torch", "torchvision", "torchaudio", "numpy", "autoprof", *sys.stdlib_module_names})
"""Packages that keep no tensor of a caller."""
_MISSING: Final = object()


class _Saved(NamedTuple):
    """An object and a copy of its contents. ``whole``: restore every entry, not only those that hold fake tensors."""

    value: Any
    before: Any
    whole: bool = False


@contextmanager
def outside_state_restored(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Restore globals and class attributes that a forward sets, and remove its fake tensors from other containers.

    Containers keep their other changes: another thread may be using them.
    """
    saved = list(_save(modules))
    try:
        yield
    finally:
        for one in saved:
            _restore(one)


def _save(modules: Iterable[nn.Module]) -> Iterator[_Saved]:
    """Yield the objects that the code of the modules reaches, with copies of their contents."""
    pending: deque[Any] = deque()
    for module in modules:
        pending.append(type(module))
        pending.extend(value for value in vars(module).values() if isinstance(value, FunctionType))
    seen: set[int] = set()
    while pending and len(seen) < 10_000:
        value = pending.popleft()
        cls = type(value)  # isinstance would ask the object, which may be a proxy that loads or warns
        if id(value) in seen or issubclass(cls, (Tensor, str, bytes, int, float)):
            continue
        seen.add(id(value))
        if issubclass(cls, dict):
            yield _Saved(value, dict(dict.items(value)))
            pending.extend(dict.values(value))
        elif issubclass(cls, (list, deque, set)):
            yield _Saved(value, [*_elements(value)])
            pending.extend(_elements(value))
        elif issubclass(cls, tuple):
            pending.extend(_elements(value))
        elif cls is _lru_cache_wrapper:
            yield _Saved(value, value.cache_info().misses)
            pending.append(value.__wrapped__)
        elif cls in (FunctionType, staticmethod, classmethod) and hasattr(value, "__wrapped__"):
            pending.append(value.__wrapped__)
        elif not _is_library(value):
            yield from _save_code(value, seen, pending)


def _save_code(value: Any, seen: set[int], pending: deque[Any]) -> Iterator[_Saved]:
    """Yield the contents of a class, a function with its closure and globals, or an object of a class."""
    if issubclass(type(value), type):
        yield _Saved(value, dict(vars(value)), whole=True)
        pending.extend((*vars(value).values(), *value.__mro__[1:]))
    elif type(value) is FunctionType:
        for cell in value.__closure__ or ():
            content = _content(cell)
            if content is not _MISSING:
                yield _Saved(cell, content)
                pending.append(content)
        names = value.__globals__
        if id(names) not in seen:
            seen.add(id(names))
            yield _Saved(names, dict(names), whole=True)
            pending.extend(names.values())
    else:
        pending.extend((type(value), _attributes(value)))


def _restore(saved: _Saved) -> None:
    value, before, whole = saved
    if isinstance(value, _lru_cache_wrapper):
        if value.cache_info().misses != before:
            value.cache_clear()
    elif isinstance(value, CellType):
        if _content(value) is not before:
            value.cell_contents = before
    elif isinstance(value, (dict, type)):
        put: Any = setattr if isinstance(value, type) else dict.__setitem__
        remove: Any = delattr if isinstance(value, type) else dict.__delitem__
        now = dict(vars(value)) if isinstance(value, type) else dict(dict.items(value))
        for name in now.keys() | before.keys():
            old, new = before.get(name, _MISSING), now.get(name, _MISSING)
            if old is not new and (whole or _holds_fake(new)):
                if old is _MISSING:
                    remove(value, name)
                else:
                    put(value, name, old)
    else:
        elements = [*_elements(value)]
        changed = len(elements) != len(before) or any(map(is_not, elements, before))
        if changed and any(map(_holds_fake, elements)):
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(before)


def _elements(container: Any) -> Iterator[Any]:
    found: Iterator[Any] = builtin_base(container).__iter__(container)
    return found


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not set yet
        return _MISSING


def _attributes(value: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if type(found) is dict else {}


def _holds_fake(value: Any, depth: int = 4) -> bool:
    cls = type(value)
    if issubclass(cls, Tensor):
        return cls is FakeTensor
    if not depth or issubclass(cls, type):
        return False
    inner: Iterable[Any] = _attributes(value).values()
    if issubclass(cls, (list, tuple, set, deque)):
        inner = _elements(value)
    elif issubclass(cls, dict):
        inner = dict.values(value)
    return any(_holds_fake(one, depth - 1) for one in list(inner))


def _is_library(value: Any) -> bool:
    owner = (value if issubclass(type(value), (type, FunctionType)) else type(value)).__module__
    return str(owner).split(".")[0].lstrip("_") in LIBRARIES
