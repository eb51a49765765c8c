"""The batches that a step fetched, with their sizes where the loader's settings say them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler

TENSORS: Final = 8
"""Tensors of a batch whose shapes are compared with the loader's batch size."""
MAX_KINDS: Final = 64
"""Kinds of data sets whose ratios are kept."""


Kind = tuple[type[Any], int]
"""The class of a data set and the batch size: a program may make its loader anew for each epoch."""


class Fetched(NamedTuple):
    """The samples fetched in a recorded step and in the gap before it, by their kind.

    ``sources`` is the number of data sets from which the step fetched.
    """

    samples: Mapping[Kind, float] = {}
    gap_samples: Mapping[Kind, float] = {}
    sources: int = 0


class FetchedBatches:
    """Count the samples of every batch that torch's loaders return, on the training thread."""

    def __init__(self) -> None:
        self._samples: dict[Kind, float] = {}
        self._gap_samples: dict[Kind, float] = {}
        self._sources = set[int]()
        self._ratio: dict[Kind, float] = {}
        """The samples of the last recorded batch over those that the sampler promised."""

    def add(self, iterator: Any, batch: Any, *, recorded: bool) -> None:
        """Add a batch; one of an unsampled step is taken to be as large as its sampler says."""
        expected = _expected_size(iterator)
        if expected is None:
            return
        source = type(iterator._dataset), iterator._index_sampler.batch_size
        if recorded:
            shapes = [tensor.shape for _, tensor in zip(range(TENSORS), _tensors(batch, 4), strict=False)]
            if source[1] == 1 and any(shape[0] != 1 for shape in shapes):  # its data set may make whole batches
                return
            size = _size(shapes, expected)
            self._sources.add(id(iterator._dataset))
            self._ratio[source] = size / expected
            self._samples[source] = self._samples.get(source, 0.0) + size
        elif source in self._ratio:
            self._gap_samples[source] = self._gap_samples.get(source, 0.0) + expected * self._ratio[source]

    def take(self) -> Fetched | None:
        """Return the counts since the last call, and clear them; None where there are none."""
        if not self._samples and not self._gap_samples:
            return None
        found = Fetched(self._samples, self._gap_samples, len(self._sources))
        self._sources.clear()
        self._samples, self._gap_samples = {}, {}
        if len(self._ratio) > MAX_KINDS:
            self._ratio = {source: self._ratio[source] for source in found.samples}
        return found


def _expected_size(iterator: Any) -> int | None:
    """Return the samples of the batch that the iterator has just returned; None where its loader does not say."""
    sampler = iterator._index_sampler
    size = getattr(sampler, "batch_size", None)
    if not iterator._auto_collation or type(size) is not int or size < 1:
        return None
    if type(sampler) is not BatchSampler:
        return size
    try:
        left = len(sampler.sampler) - size * (iterator._num_yielded - 1)  # type: ignore[arg-type]
    except TypeError:  # the sampler of an iterable data set has no length
        return size
    return min(size, left) if left > 0 else size


def _size(shapes: Sequence[torch.Size], expected: int) -> int:
    """Return the samples in a batch: ``expected``, unless its tensors agree that some were left out."""
    first = {shape[0] for shape in shapes}
    if len(first) == 1 and not any(expected in shape for shape in shapes):
        (size,) = first
        return min(int(size), expected)
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
