"""Notice gradients that ``zero_grad`` clears before a step of an optimizer has used them.

One parameter stands for all that are cleared together: the version of its gradient counts the backward passes that have
reached it. Where the parameter itself has changed meanwhile, the program has used the gradient by its own means.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from itertools import islice
from posixpath import commonpath
from typing import Any, Final, NamedTuple

from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from ..base.process.replace import CallProbe, Listener
from ..capture.hooks.optimizer_hooks import OptimizerHooks
from ..capture.recorder import Recorder
from ._base import ProbeFactory
from .update import REPLACEMENTS

MAX_CALLS: Final = 64
"""Calls that are looked at: what the first steps clear, later ones do as well."""
SEARCHED: Final = 16
"""Parameters among which one with a gradient is looked for."""


class _Reading(NamedTuple):
    """The gradient of a parameter when it was used or cleared, and the version of the parameter."""

    gradient: int
    passes: int
    version: int


class ClearedGradients(CallProbe, Listener):
    """Count the backward passes whose gradients are cleared unused, by the module that holds the parameters."""

    def __init__(self, model: nn.Module, recorder: Recorder) -> None:
        super().__init__([(replacement, self) for replacement in REPLACEMENTS["zero_grad"]])
        self._hooks = OptimizerHooks(after=self._stepped)
        self._recorder = recorder
        self._model = weakref.ref(model)
        self._left = MAX_CALLS
        self._seen: MutableMapping[nn.Parameter, _Reading] = WeakIdKeyDictionary()
        """What was seen of each parameter that stands for others."""
        self._modules: weakref.WeakKeyDictionary[Any, str | None] = weakref.WeakKeyDictionary()
        """The fqn of the module that holds all parameters of an optimizer or a module; None outside of the model."""
        self._open: nn.Parameter | None = None
        self._used: Counter[str] = Counter()
        self._cleared: Counter[str] = Counter()

    def attach(self) -> None:
        """Look at the calls, until there were enough."""
        if self._left > 0:
            super().attach()
            self._hooks.attach()

    def detach(self) -> None:
        super().detach()
        self._hooks.detach()

    def remove(self) -> None:
        super().remove()
        self._hooks.remove()

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Count what this call clears."""
        self._left -= 1
        if self._left < 0:
            self.detach()
            return False
        self._open = self._look(args[0], self._cleared) if args else None
        return self._open is not None

    def leave(self) -> None:
        """Remember the cleared gradient: it may be the same tensor, of zeros."""
        parameter, self._open = self._open, None
        if parameter is not None:
            self._seen[parameter] = _read(parameter)

    def _stepped(self, optimizer: Any, *_call: Any) -> None:
        parameter = self._look(optimizer, self._used)
        if parameter is not None:
            self._seen[parameter] = _read(parameter)

    def _look(self, owner: Any, counts: Counter[str]) -> nn.Parameter | None:
        """Add the passes since the gradient of an owner was used or cleared; return the parameter that shows them."""
        try:
            parameter = next((one for one in islice(_parameters(owner), SEARCHED) if one.grad is not None), None)
            module = None if parameter is None else self._module_of(owner)
            if parameter is None or module is None:
                return None
            before, now = self._seen.get(parameter), _read(parameter)
            if counts is self._used or before is None or before.version == now.version:
                is_same = before is not None and before.gradient == now.gradient
                counts[module] += now.passes - (before.passes if is_same and before is not None else 0)
        except Exception:
            self._left = 0
            self._recorder.handle_failure("cleared gradients")
            return None
        return parameter

    def _module_of(self, owner: Any) -> str | None:
        """Return the fqn of the innermost module of the model that holds all parameters of an owner."""
        if owner not in self._modules:
            model, ours = self._model(), {id(one) for one in _parameters(owner)}
            named = () if model is None else model.named_parameters()
            paths = [f"/{name.rpartition('.')[0].replace('.', '/')}" for name, one in named if id(one) in ours]
            self._modules[owner] = commonpath(paths)[1:].replace("/", ".") if paths else None
        return self._modules[owner]

    def shares(self) -> dict[str, float]:
        """Return the part of the backward passes that were cleared unused, by the fqn of the module that they reach."""
        return {fqn: passes / (passes + self._used[fqn]) for fqn, passes in self._cleared.items() if passes > 0}


def _parameters(owner: Any) -> Iterator[nn.Parameter]:
    if isinstance(owner, nn.Module):
        return owner.parameters()
    groups: Iterable[dict[str, Any]] = owner.param_groups
    return (one for group in groups for one in group["params"])


def _read(parameter: nn.Parameter) -> _Reading:
    gradient = parameter.grad
    passes = 0 if gradient is None else gradient._version + 1
    return _Reading(id(gradient), passes, parameter._version)


PROBE = ProbeFactory(lambda context: ClearedGradients(context.model, context.recorder))
