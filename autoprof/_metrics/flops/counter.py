"""Count a model's step once, and again only when the shapes that come in are new."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from torch import nn

from .run import ModuleCall, count_call
from .work import WorkCount, add_up

COUNTS: Final = 32
"""The most calls that are counted in a run: where every batch has a shape of its own, counting would be a phase."""


class Counter:
    """The counts of one model by what they depend on: shapes, mode, autocast, and which parameters train."""

    def __init__(self, model: nn.Module, limit: int = COUNTS, *, trust: bool = False) -> None:
        self._model = model
        self._limit = limit
        self._trust = trust
        self._known: dict[Hashable, WorkCount] = {}
        self._training: Hashable = None
        self.spent_ns = 0
        """What counting has cost so far."""

    def known(self, calls: Iterable[tuple[ModuleCall, int]]) -> WorkCount | None:
        """Return the count of a step's calls, each so many times, or None where one would have to be counted first."""
        found = [(self._known.get(_key(call)), times) for call, times in calls]
        return None if any(count is None for count, _ in found) else add_up((c, n) for c, n in found if c is not None)

    def count(self, calls: Iterable[tuple[ModuleCall, int]]) -> WorkCount:
        """Return the count of a step's calls, each so many times, counting those that are new.

        For the thread that trains, between two steps. Looks at every parameter, so call it when ``known`` says None,
        and when parameters were frozen or thawed.
        """
        training = tuple(parameter.requires_grad for parameter in self._model.parameters())
        if training != self._training:
            self._training = training
            self._known.clear()
        return add_up((self._one(call), times) for call, times in list(calls))

    def _one(self, call: ModuleCall) -> WorkCount:
        key = _key(call)
        count = self._known.get(key)
        if count is not None:
            return count
        if len(self._known) >= self._limit:
            return WorkCount(reason=f"the shapes of the inputs changed more than {self._limit} times")
        count = self._known[key] = count_call(self._model, call, trust=self._trust)
        self.spent_ns += count.count_ns
        return count


def _key(call: ModuleCall) -> Hashable:
    return call.fqn, call.inputs.key(), call.ambient, call.backward
