"""Bytes of parameters, buffers, gradients and optimizer state, of the whole model and by name."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import thread_time_ns
from typing import Any, Final

from torch import nn

from ..._core.failures import contain, describe
from ..._core.signals import DeferSignals
from ..._process.gc_paused import GcPaused
from .extents import Extent, bytes_of, extents

MAX_COUNTS: Final = 16
"""Optimizer steps at which bytes are counted, at most: each count reads all parameters."""


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of one name, or of the whole model; None: unmeasured."""

    parameter_bytes: int
    buffer_bytes: int
    gradient_bytes: int | None = None
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Holdings:
    """Bytes of the whole model with its optimizers, and of each name; a name includes its inner modules."""

    whole: Held
    names: Mapping[str, Held] = field(default_factory=dict)


class Footprint:
    """Count the bytes of a model after its optimizer's step, when gradients and optimizer state exist together.

    Reads sizes only: it keeps no gradient alive and never waits for a device.
    """

    def __init__(self, model: nn.Module, named: Iterable[tuple[str, nn.Module]]) -> None:
        self._model = weakref.ref(model)
        self._modules: dict[str, list[weakref.ref[nn.Module]]] = {}
        for name, module in named:
            self._modules.setdefault(name, []).append(weakref.ref(module))
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._seen: dict[int, tuple[int, tuple[int, int] | None]] = {}
        """The counts at each optimizer's steps, and its groups and tensors at the last one."""
        self._counts = 0
        self._found: Holdings | None = None
        self._gradients: tuple[int, dict[str, int]] | None = None
        self.failure: str | None = None
        """The reason for which counting stopped; None while it works."""
        self.spent_ns = 0
        """Time of counts within the user's steps since it was last reset."""

    def optimizers(self) -> list[Any]:
        """Return the known optimizers that still exist."""
        return [one for one in (known() for known in self._optimizers.values()) if one is not None]

    def stepped(self, optimizer: Any, *_args: Any) -> None:
        """Count bytes after the first two steps of each optimizer of the model, and after one in which it grew."""
        if self._counts >= MAX_COUNTS or self.failure is not None:
            return
        known = self._optimizers.get(id(optimizer))
        if known is None or known() is not optimizer:
            if not self._trains(optimizer):
                return
            self._optimizers[id(optimizer)] = weakref.ref(optimizer)
            self._seen.pop(id(optimizer), None)
        steps, size = self._seen.get(id(optimizer), (0, None))
        now = len(optimizer.param_groups), len(optimizer.state)
        if steps >= 2 and size == now:  # its state exists after the first step
            return
        self._counts += 1
        self._seen[id(optimizer)] = steps + 1, now
        began = thread_time_ns()
        self._try_count(gradients=True)
        self.spent_ns += thread_time_ns() - began

    def _trains(self, optimizer: Any) -> bool:
        model = self._model()
        if model is None:
            return False
        own = {id(parameter) for parameter in model.parameters()}
        return any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"])

    def holdings(self, *, recount: bool = False) -> Holdings | None:
        """Return the bytes counted so far, at least of parameters; ``recount`` counts all except gradients."""
        if self.failure is None and (recount or self._found is None):
            self._try_count(gradients=False)
        return self._found

    def _try_count(self, *, gradients: bool) -> None:
        # A tensor without a readable size ends this count, not the training. Thousands of extents would start the
        # garbage collector, which takes longer than the count. No Ctrl-C may leave it disabled.
        with DeferSignals(), contain(self._fail), GcPaused():
            self._count(gradients=gradients)

    def _fail(self, error: Exception) -> None:
        self.failure = describe(error)

    def _count(self, *, gradients: bool) -> None:
        model = self._model()
        if model is None:
            return
        optimizers = self.optimizers()
        parameters: dict[int, list[Extent]] = {}
        gradient_extents: dict[int, list[Extent]] = {}
        for parameter in model.parameters():
            parameters[id(parameter)] = list(extents(parameter))
            if gradients and parameter.grad is not None:
                gradient_extents[id(parameter)] = list(extents(parameter.grad))
        buffers = {id(buffer): list(extents(buffer)) for buffer in model.buffers()}
        states: dict[int, list[Extent]] = {}
        other_state: list[Extent] = []
        for optimizer in optimizers:
            for key, held in list(optimizer.state.items()):
                found = extents(held)
                (states.setdefault(id(key), []) if id(key) in parameters else other_state).extend(found)
        known = bool(self._seen) or any(optimizer.state for optimizer in optimizers)  # else none has stepped
        named = {name: _members(modules) for name, modules in self._modules.items()}
        if gradients:
            self._keep_gradients(gradient_extents, {name: members for name, (members, _) in named.items()})
        gradients_found = self._gradients
        names = {
            name: Held(
                _sum(parameters, own),
                _sum(buffers, own_buffers),
                None if gradients_found is None else gradients_found[1].get(name, 0),
                _sum(states, own) if known else None,
            )
            for name, (own, own_buffers) in named.items()
        }
        state = bytes_of([*other_state, *(extent for found in states.values() for extent in found)]) if known else None
        whole = Held(_sum(parameters), _sum(buffers), None if gradients_found is None else gradients_found[0], state)
        self._found = Holdings(whole, names)

    def _keep_gradients(self, gradient_extents: dict[int, list[Extent]], members: Mapping[str, set[int]]) -> None:
        """Keep the count with the most gradients: models that train in turn do not have all of them at once."""
        total = _sum(gradient_extents)
        if self._gradients is None or total >= self._gradients[0]:
            self._gradients = total, {name: _sum(gradient_extents, own) for name, own in members.items()}


def _members(modules: Iterable[weakref.ref[nn.Module]]) -> tuple[set[int], set[int]]:
    alive = [module for module in (known() for known in modules) if module is not None]
    parameters, buffers = set[int](), set[int]()
    for module in alive:
        if not module._modules:  # torch's iterators take 5 us for a module of two parameters
            parameters.update(id(parameter) for parameter in module._parameters.values() if parameter is not None)
            buffers.update(id(buffer) for buffer in module._buffers.values() if buffer is not None)
        else:
            parameters.update(map(id, module.parameters()))
            buffers.update(map(id, module.buffers()))
    return parameters, buffers


def _sum(found: Mapping[int, list[Extent]], among: set[int] | None = None) -> int:
    return bytes_of(extent for key in (found if among is None else among) for extent in found.get(key, ()))
