"""Notice gradients that ``zero_grad`` clears before a step of an optimizer has used them.

One parameter stands for all that are cleared together: the version of its gradient counts what backward has added to
it. Where the parameter itself has changed meanwhile, or no step of an optimizer was seen to use its gradients, the
program uses them by its own means.
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

MAX_CALLS: Final = 128
"""Steps of optimizers and calls of ``zero_grad`` that are read: later steps of a loop repeat the first ones."""
SEARCHED: Final = 16
"""Parameters among which one with a gradient is looked for."""


class _Reading(NamedTuple):
    """The gradient of a parameter when it was used or cleared, and the version of the parameter."""

    gradient: int
    additions: int
    version: int


class ClearedGradients(CallProbe, Listener):
    """Count the gradients that are cleared unused, by the module that holds the parameters."""

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
        self._paths: dict[int, str] = {}
        """The path of the module of each parameter of the model."""
        self._open: nn.Parameter | None = None
        self._used: Counter[str] = Counter()
        self._cleared: Counter[str] = Counter()

    def attach(self) -> None:
        """Look at the calls, until there were enough."""
        if self._left > 0:
            super().attach()
            self._hooks.attach()

    def detach(self) -> None:
        """Remove the listeners, and forget all readings: steps may use gradients meanwhile."""
        super().detach()
        self._hooks.detach()
        self._seen.clear()

    def remove(self) -> None:
        super().remove()
        self._hooks.remove()

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Count what this call clears."""
        if self._left <= 0:  # torch goes through the hooks of a step where that ends, so they are removed here
            self.detach()
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
        """Count the additions to a gradient since it was used or cleared; return the parameter that was read."""
        self._left -= 1
        if self._left < 0:
            return None
        try:
            parameter = next((one for one in islice(_parameters(owner), SEARCHED) if one.grad is not None), None)
            module = None if parameter is None else self._module_of(owner)
            if parameter is None or module is None:
                return None
            before, now = self._seen.get(parameter), _read(parameter)
            if before is not None and (counts is self._used or before.version == now.version):
                is_same = before.gradient == now.gradient
                counts[module] += now.additions - (before.additions if is_same else 0)
        except Exception:
            self._left = 0
            self._recorder.handle_failure("cleared gradients")
            return None
        return parameter

    def _module_of(self, owner: Any) -> str | None:
        """Return the fqn of the innermost module of the model that holds all parameters of an owner."""
        if owner not in self._modules:
            model = self._model()
            if not self._paths and model is not None:
                named = model.named_parameters()
                self._paths = {id(one): f"/{name.rpartition('.')[0].replace('.', '/')}" for name, one in named}
            paths = [self._paths[id(one)] for one in _parameters(owner) if id(one) in self._paths]
            self._modules[owner] = commonpath(paths)[1:].replace("/", ".") if paths else None
        return self._modules[owner]

    def shares(self) -> dict[str, float]:
        """Return the part of the gradients that was cleared unused, by the fqn of their module; steps use the rest."""
        return {fqn: n / (n + self._used[fqn]) for fqn, n in self._cleared.items() if n > 0 and self._used[fqn] > 0}


def _parameters(owner: Any) -> Iterator[nn.Parameter]:
    if isinstance(owner, nn.Module):
        return owner.parameters()
    groups: Iterable[dict[str, Any]] = owner.param_groups
    return (one for group in groups for one in group["params"])


def _read(parameter: nn.Parameter) -> _Reading:
    gradient = parameter.grad
    additions = 0 if gradient is None else gradient._version + 1
    return _Reading(id(gradient), additions, parameter._version)


PROBE = ProbeFactory(lambda context: ClearedGradients(context.model, context.recorder))
