"""Bytes of parameters, buffers, gradients and optimizer state, of the whole model and by name."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from torch import nn

from ...base.allowance import Allowance
from ...base.failures import contain, describe
from ...base.process.gc_paused import GcPaused
from ...base.signals import DeferSignals
from ...base.summary import MemoryRow
from .extents import Extent, bytes_of, extents

MAX_COUNTS: Final = 16
"""Optimizer steps at which bytes are counted, at most: each count reads all parameters."""
VERSION_NS: Final = 2_000
"""Processor time of reading the version of a parameter, with its name."""
TENSOR_NS: Final = 12_000
"""Processor time of a count for each parameter, measured: its own bytes, those of its gradient and of its state."""
_OTHER: Final = 0
"""The key of an optimizer's state that belongs to no parameter of the model."""


class Footprint:
    """Count the bytes of a model after its optimizer's step, when gradients and optimizer state exist together.

    Reads sizes only: it keeps no gradient alive and never waits for a device.
    """

    def __init__(self, model: nn.Module, named: Iterable[tuple[str, nn.Module]], allowance: Allowance) -> None:
        self._allowance = allowance
        self._tensors = sum(1 for _ in model.parameters())
        """The parameters of the model, each with its gradient and its state."""
        self._model = weakref.ref(model)
        self._modules: dict[str, list[weakref.ref[nn.Module]]] = {}
        for name, module in named:
            self._modules.setdefault(name, []).append(weakref.ref(module))
        self._sizes: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        """The groups and the tensors of each optimizer of the model when it was last counted."""
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        """The optimizers of the model that have stepped."""
        self.trains_copy = False
        """Whether an optimizer steps whose parameters are others of the same shapes: those of a copy of the model."""
        self._losses: Mapping[str, weakref.ref[nn.Module]] = {}
        self._versions: dict[str, int] = {}
        """The versions of the parameters that had a gradient after the first step of an optimizer."""
        self._watched = 0
        """The losses whose parameters are among them."""
        self._untrained: tuple[str, ...] = ()
        self._counts = 0
        self._found: Mapping[str | None, MemoryRow] = {}
        self._gradients: dict[str | None, int] = {}
        self.failure: str | None = None
        """The reason for which counting stopped; None while it works."""

    def watch(self, losses: Mapping[str, weakref.ref[nn.Module]]) -> None:
        """Compare the parameters of these losses as well: one of each class that was called, by its name."""
        self._losses = losses

    def optimizers(self) -> list[Any]:
        """Return the known optimizers that still exist."""
        return list(self._optimizers)

    def stepped(self, optimizer: Any, *_args: Any) -> None:
        """Count bytes after the first step of each optimizer of the model, and after one in which it grew."""
        if self._versions and len(self._losses) > self._watched:
            self._watched = len(self._losses)
            with self._allowance.work(), contain(self._fail):
                self._read_versions()
        if self._counts >= MAX_COUNTS or self.failure is not None:
            return
        size = len(optimizer.param_groups), len(optimizer.state)
        known = self._sizes.get(optimizer)
        if known == size or not (optimizer in self._optimizers or self._trains(optimizer)):
            return
        self._optimizers.add(optimizer)
        if not self._allowance.affords(self._tensors * TENSOR_NS):  # it is asked again after the next step
            return
        self._counts += 1
        if known is None:
            self._untrained = ()  # it may train parameters that the other optimizers do not
        self._sizes[optimizer] = size
        with self._allowance.work():
            self._try_count(gradients=True)
            if not self._versions:
                self._read_versions()

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the plain parameters that require gradients; of others the version says nothing."""
        for around, known in (("", self._model), *((f"{name}.", loss) for name, loss in self._losses.items())):
            module = known()
            for name, one in () if module is None else module.named_parameters():
                if type(one) is nn.Parameter and one.requires_grad:
                    yield f"{around}{name}", one

    def _read_versions(self) -> None:
        for name, one in self._parameters():
            if one.grad is not None:
                self._versions.setdefault(name, one._version)

    def untrained(self, *, final: bool = True) -> tuple[str, ...]:
        """Return the outermost modules whose parameters have gradients, while no optimizer changes any of them.

        Nothing is returned where no parameter has changed: then the updates are made in a way that leaves no trace.
        The model is looked at in each call that the budget affords, and in the final one, unless the program has
        dropped it before.
        """
        if self._model() is not None and (final or self._allowance.affords(len(self._versions) * VERSION_NS)):
            with self._allowance.work():
                self._untrained = self._find_untrained()
        return self._untrained

    def _find_untrained(self) -> tuple[str, ...]:
        trained = {id(one) for optimizer in self._sizes for group in optimizer.param_groups for one in group["params"]}
        still: dict[str, bool] = {}
        for name, one in self._parameters():
            if name in self._versions:
                still[name] = one._version == self._versions[name] and id(one) not in trained
        if all(still.values()):
            return ()
        found: list[str] = []
        for name in still:
            path = name.split(".")[:-1]
            around = (".".join(path[:depth]) for depth in range(1, len(path) + 1))
            outer = [fqn for fqn in around if all(on for one, on in still.items() if one.startswith(f"{fqn}."))]
            if outer and outer[0] not in found:
                found.append(outer[0])
        return tuple(found)

    def _trains(self, optimizer: Any) -> bool:
        model = self._model()
        if model is None:
            return False
        trained = {id(one): one.shape for group in optimizer.param_groups for one in group["params"]}
        if any(id(one) in trained for one in model.parameters()):
            return True
        self.trains_copy |= Counter(one.shape for one in model.parameters()) == Counter(trained.values())
        return False

    def rows(self, *, recount: bool = False) -> Mapping[str | None, MemoryRow]:
        """Return the bytes of each name, None for the whole model; ``recount`` counts all except gradients."""
        if self.failure is None and (recount or not self._found):
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
        parameters = {id(one): list(extents(one)) for one in model.parameters()}
        buffers = {id(one): list(extents(one)) for one in model.buffers()}
        states: dict[int, list[Extent]] = {}
        for optimizer in self.optimizers():
            for key, held in list(optimizer.state.items()):
                states.setdefault(id(key) if id(key) in parameters else _OTHER, []).extend(extents(held))
        members: dict[str | None, tuple[set[int], set[int]]] = {None: ({*parameters, _OTHER}, set(buffers))}
        members |= {name: _members(modules) for name, modules in self._modules.items()}
        if gradients:
            self._count_gradients(model, {name: own for name, (own, _) in members.items()})
        self._found = {
            name: MemoryRow(
                name,
                _sum(parameters, own),
                _sum(buffers, own_buffers),
                self._gradients.get(name, 0) if self._gradients else None,
                _sum(states, own) if self._sizes else None,
            )
            for name, (own, own_buffers) in members.items()
        }

    def _count_gradients(self, model: nn.Module, members: Mapping[str | None, set[int]]) -> None:
        """Keep the count with the most gradients: models that train in turn do not have all of them at once."""
        found = {id(one): list(extents(one.grad)) for one in model.parameters() if one.grad is not None}
        counted = {name: _sum(found, own) for name, own in members.items()}
        if counted[None] >= self._gradients.get(None, 0):
            self._gradients = counted


def _members(modules: Iterable[weakref.ref[nn.Module]]) -> tuple[set[int], set[int]]:
    alive = [module for module in (known() for known in modules) if module is not None]
    return (
        {id(parameter) for module in alive for parameter in module.parameters()},
        {id(buffer) for module in alive for buffer in module.buffers()},
    )


def _sum(found: Mapping[int, list[Extent]], among: set[int]) -> int:
    return bytes_of(extent for key in among for extent in found.get(key, ()))
