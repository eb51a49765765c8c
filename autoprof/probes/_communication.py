"""The ranks of a group in words, and the waits for functional collectives, which happen in C++.

``_c10d_functional.wait_tensor`` calls no ``Work.wait``. A kernel registered in torch's dispatcher, at a key where this
operator has none, passes its arguments on to the next kernel and marks the wait. It changes no tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

import torch
import torch.distributed as dist

from ..base.process.replace import Listener, call_listeners

UNKNOWN_MEMBERS: Final = " (unknown ranks)"
"""The end of the name of a call in a group whose ranks are unknown."""
_BELOW: Final = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)


def members_label(group: Any) -> str:
    """Return the words for the ranks of a group, the same on each of them; nothing for a group of all ranks."""
    try:
        ranks = sorted(dist.get_process_group_ranks(group))
        return "" if len(ranks) == dist.get_world_size() else f" (ranks {_phrase_members(ranks)})"
    except Exception:  # a group that torch.distributed did not make
        return UNKNOWN_MEMBERS


def _phrase_members(ranks: list[int]) -> str:
    """Return different texts for different ranks: a range, a list, or a list cut to its beginning with a checksum."""
    # Ranks of a group that are listed one by one.
    max_listed = 4
    if len(ranks) > 1 and all(after - before == 1 for before, after in pairwise(ranks)):
        return f"{ranks[0]}-{ranks[-1]}"
    if len(ranks) <= max_listed:
        return ", ".join(map(str, ranks))
    first = ", ".join(map(str, ranks[:max_listed]))
    return f"{first}, … {len(ranks)} in all, {crc32(repr(ranks).encode()):08x}"


def call_bytes(args: Iterable[Any]) -> int:
    """Return the size of a collective: the bytes of its input or of its result, whichever is more.

    That is the size of the benchmarks of NCCL (nccl-tests, PERFORMANCE.md); a list of tensors counts together, and
    tensors of other classes than torch's own do not.
    """
    most = 0
    for one in args:
        several = one if type(one) in (list, tuple) else (one,)
        # Others, as the tensors of a compiler, may have no size yet, or call code of their own.
        plain = (each for each in several if type(each) in (torch.Tensor, torch.nn.Parameter))
        most = max(most, sum(each.numel() * each.element_size() for each in plain))
    return most


class Traffic:
    """The bytes that collectives of recorded steps were given, by the code of their spans."""

    def __init__(self) -> None:
        self._open: Counter[int] = Counter()
        self._closed: Counter[int] = Counter()

    def add(self, code: int, size: int) -> None:
        """Add a call in the open step; a wait has no tensors."""
        if size:
            self._open[code] += size

    def close_step(self, counts: bool) -> None:
        """Count the calls of a step that ends; those of a warm-up step are in no statistic."""
        if self._open:
            if counts:
                self._closed.update(self._open)
            self._open.clear()

    def sizes(self) -> dict[int, int]:
        """Return the bytes in all recorded steps, by code."""
        return dict(self._closed)


def has_ranks() -> bool:
    """Return whether this process communicates with other ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class WaitOperator:
    """The place of a kernel of ``wait_tensor`` in torch's dispatcher."""

    def __init__(self) -> None:
        self._kernel: Any = None
        self._library: Any = None

    def get(self) -> Any:
        return self._kernel or torch.ops._c10d_functional.wait_tensor.default

    def put(self, value: Any) -> None:
        library: Any = torch.library.Library
        self._kernel, self._library = value, library("_c10d_functional", "IMPL")
        # The key is below those of autograd and of Python's modes, and no guard of torch excludes it: DTensor
        # communicates inside the dispatch of another operator, where autograd's keys are off.
        self._library.impl("wait_tensor", value, "BackendSelect", with_keyset=True)

    def put_back(self, value: Any) -> None:
        self._kernel = None
        self._library._destroy()


def mark_waits(operator: Any, listeners: list[Listener]) -> Any:
    """Return a kernel that calls the listeners around each call of the next kernel."""

    def wait_tensor(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return operator.redispatch(keys & _BELOW, *args, **kwargs)

    return call_listeners(wait_tensor, listeners)
