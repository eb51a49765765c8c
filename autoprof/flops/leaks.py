"""Take back fake tensors that a forward has put somewhere outside of the model: a cached mask, a list of losses.

A forward that keeps what it computes in a global cache would find a fake tensor there in a real step. To count a call
that has been made before makes that rare, because the cache then holds the real tensor already.
"""

from __future__ import annotations

import gc
from collections import deque
from functools import _lru_cache_wrapper
from types import FrameType
from typing import Any, Final

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_TUPLES: Final = 3
"""Tuples inside tuples that are looked through for what holds the outermost."""


def scrub(mode: FakeTensorMode) -> str | None:
    """Remove every fake tensor of this mode that is still alive; say so where one could not be removed.

    Looks through all objects that the garbage collector knows, and collects only when it finds one.
    """
    if not _alive(mode):
        return None
    gc.collect()  # what hangs in reference cycles dies here
    for cache in _caches(mode):
        cache.cache_clear()
    _release_all(_alive(mode))
    gc.collect()  # what only those held on to
    left = _alive(mode)
    if not left:
        return None
    shape = tuple(left[0].shape)
    return f"the forward keeps a tensor of shape {shape} outside of the model, from where it cannot be taken back"


def _alive(mode: FakeTensorMode) -> list[FakeTensor]:
    return [one for one in gc.get_objects() if type(one) is FakeTensor and one.fake_mode is mode]


def _caches(mode: FakeTensorMode) -> list[Any]:
    """Find the caches of ``functools`` that hold one, at most one container deep."""
    found = []
    for cache in gc.get_objects():
        if type(cache) is _lru_cache_wrapper:
            held = gc.get_referents(cache)
            held += [item for one in held if isinstance(one, (tuple, list)) for item in one]
            if any(type(one) is FakeTensor and one.fake_mode is mode for one in held):
                found.append(cache)
    return found


def _release_all(found: list[FakeTensor]) -> None:
    for fake in found:
        _release(fake, [found], _TUPLES)


def _release(thing: Any, ours: list[Any], tuples: int) -> None:
    for holder in gc.get_referrers(thing):
        if isinstance(holder, FrameType) or holder is ours or any(holder is one for one in ours):
            continue
        if isinstance(holder, tuple) and tuples:
            _release(holder, ours, tuples - 1)
        else:
            _remove(holder, thing)


def _remove(holder: Any, thing: Any) -> None:
    if isinstance(holder, dict):
        namespace = "__builtins__" in holder or any(
            getattr(owner, "__dict__", None) is holder for owner in gc.get_referrers(holder)
        )
        for key in [key for key, value in holder.items() if value is thing]:
            if namespace:  # a name that is gone would raise where one that is None may be asked for
                holder[key] = None
            else:
                del holder[key]
    elif isinstance(holder, (list, deque)):
        for index in reversed([index for index, value in enumerate(holder) if value is thing]):
            del holder[index]
    elif isinstance(holder, set):
        holder.discard(thing)
    elif not isinstance(holder, FakeTensor):
        attributes = getattr(holder, "__dict__", {})  # Python may keep the values in the object itself
        for name in [name for name, value in attributes.items() if value is thing]:
            attributes[name] = None
