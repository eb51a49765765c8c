"""The samples of the batches that a step fetched: the indices that the loader's sampler gave for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import isnan, nan
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.utils.data import BatchSampler

TENSORS: Final = 8
"""Tensors of a batch whose shapes are compared with the number of indices."""
MAX_KINDS: Final = 64
"""Kinds of data sets that are known."""


Kind = tuple[type[Any], int]
"""The class of a data set and the batch size, 0 for other samplers: a program may make its loader anew."""


class Fetched(NamedTuple):
    """The samples fetched in a recorded step and in the gap before it: NaN if unknown, None without a fetch.

    ``several``: the step fetched from several data sets.
    """

    samples: float | None
    gap_samples: float | None
    several: bool


_sizes: Final[WeakKeyDictionary[Any, tuple[Any, dict[int, float]]]] = WeakKeyDictionary()
"""For each iterator of a loader, its sampler's iterator and the numbers of indices of the batches to come."""


def note_indices(iterator: Any, indices: Any) -> None:
    """Keep the number of indices that the sampler gave for a batch. Runs no code of the program, and never raises."""
    try:
        is_plain = type(indices).__module__ in ("builtins", "torch", "numpy")
        size = len(indices) if is_plain and hasattr(indices, "__len__") else nan
        if not iterator._auto_collation and type(iterator._index_sampler) is not BatchSampler:
            size = nan  # one item, which may be a whole batch
        sampler = iterator._sampler_iter
        known = _sizes.get(iterator)
        if known is None or known[0] is not sampler:
            known = _sizes[iterator] = sampler, {}
        known[1][getattr(iterator, "_send_idx", 0)] = size
    except Exception:  # names private to torch, which other versions may lack
        return


def take_size(iterator: Any) -> float:
    """Return the number of indices of the batch just returned, which no worker process has any more. Never raises."""
    try:
        sizes, tasks = _sizes[iterator][1], getattr(iterator, "_task_info", ())
        found = {sizes.pop(number) for number in [*sizes] if number not in tasks}
        return found.pop() if len(found) == 1 else nan
    except Exception:
        return nan


class FetchedBatches:
    """Count the samples of every batch that torch's loaders return, on the training thread."""

    def __init__(self) -> None:
        self.are_new = False
        """Whether a batch was fetched since the last ``take``."""
        self._samples: dict[Kind, float] = {}
        self._gap_samples: dict[Kind, float] = {}
        self._sources = set[int]()
        self._alone = Counter[Kind]()
        """The recorded steps that fetched from this kind alone, less those that fetched from others too."""

    def add(self, iterator: Any, batch: Any, expected: float, *, recorded: bool) -> None:
        """Add a batch of so many indices."""
        self.are_new = True
        sampler, samples = iterator._index_sampler, self._samples if recorded else self._gap_samples
        kind = type(iterator._dataset), sampler.batch_size if type(sampler) is BatchSampler else 0
        if recorded:
            self._sources.add(id(iterator._dataset))
        samples[kind] = samples.get(kind, 0.0) + _size(batch, expected)

    def take(self) -> Fetched | None:
        """Return the counts since the last call, and clear them; None where there are none."""
        self.are_new = False
        samples, gap_samples, sources = self._samples, self._gap_samples, len(self._sources)
        if not samples and not gap_samples:
            return None
        self._samples, self._gap_samples, self._sources = {}, {}, set()
        if len(self._alone) > MAX_KINDS:
            self._alone.clear()
        for kind in samples:
            self._alone[kind] += 1 if sources == 1 else -1
        found = self._sum(samples) if sources == len(samples) else nan
        return Fetched(found, self._sum(gap_samples), sources > 1)

    def _sum(self, samples: Mapping[Kind, float]) -> float | None:
        """Return the samples of the kinds that feed steps alone; NaN where there are none, or a kind is new."""
        if not samples:
            return None
        feeding = [count for kind, count in samples.items() if self._alone[kind] > 0]
        return sum(feeding) if feeding and samples.keys() <= self._alone.keys() else nan


def _size(batch: Any, expected: float) -> float:
    """Return the samples in a batch: ``expected``, unless its tensors agree that some were left out."""
    if isnan(expected):
        return nan
    shapes = [one.shape for one, _ in zip(_tensors(batch, 4), range(TENSORS), strict=False)]
    first = {shape[0] for shape in shapes}
    if expected == 1 and first - {1}:  # the data set may make whole batches
        return nan
    if len(first) == 1 and not any(expected in shape for shape in shapes):
        return min(float(first.pop()), expected)
    return expected


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.ndim:
            yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item, depth - 1)
    elif depth and isinstance(value, (tuple, list)):
        for item in value[:TENSORS]:
            yield from _tensors(item, depth - 1)
