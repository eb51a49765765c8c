"""Hooks on the steps of optimizers."""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from types import FrameType
from typing import Any, Final

from torch import nn
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from ...base.process.replace import Attribute, Replacement, call_after, never_compile

MAX_WRAPPER_FRAMES: Final = 16
"""Frames between the hook of an optimizer's step and the step of a class around it."""
SAMPLED_PARAMETERS: Final = 16
"""Parameters of an optimizer whose versions are compared, at most."""
_tensor_of, _version_of = weakref.ref.__call__, attrgetter("_version")
_INIT = Replacement(Attribute(Optimizer, "__init__"), call_after)


def running_steps() -> list[Optimizer]:
    """Return the optimizers whose step runs on this thread, the outermost first: its hooks were not there at its begin.

    torch calls these hooks in a function around ``step`` whose variable ``self`` is the optimizer (torch 2.4 to 2.15).
    """
    found: list[Optimizer] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is vars(torch_optimizer) and frame.f_code.co_name == "wrapper":
            optimizer = frame.f_locals.get("self")
            if isinstance(optimizer, Optimizer):
                found.append(optimizer)
        frame = frame.f_back
    return found[::-1]


def wrapping_class(optimizer: Any) -> type | None:
    """Return the class around an optimizer whose ``step`` runs now and made the optimizer step; None without one.

    It is a class of its own, as Lookahead often is: it holds the optimizer, and has ``zero_grad`` as optimizers have.
    """
    found: type | None = None
    frame: FrameType | None = sys._getframe(2)
    for _ in range(MAX_WRAPPER_FRAMES):
        if frame is None:
            break
        owner = frame.f_locals.get("self") if frame.f_code.co_name == "step" else None
        if owner is not None and not isinstance(owner, (Optimizer, nn.Module)):
            held = getattr(owner, "__dict__", {}).values()
            if callable(getattr(owner, "zero_grad", None)) and any(one is optimizer for one in held):
                optimizer, found = owner, type(owner)
        frame = frame.f_back
    return found


class OptimizerHooks:
    """Call functions around the steps of every torch optimizer of the process. A ``Probe``.

    Detaching removes the hooks by their functions and not by handles: a signal may have come between the registration
    of a hook and the assignment of its handle.
    """

    def __init__(self, *, before: Callable[..., Any] | None = None, after: Callable[..., None] | None = None) -> None:
        self._before = before
        self._after = after
        self._attached = False
        for function in (before, after):
            if function is not None:  # a compiled step breaks its graph at a hook, and does not trace its body
                never_compile(getattr(function, "__func__", function), callees=True)

    def attach(self) -> None:
        """Register the hooks, unless that is done."""
        if self._attached:
            return
        self._attached = True
        if self._before is not None:
            torch_optimizer.register_optimizer_step_pre_hook(self._before)
        if self._after is not None:
            torch_optimizer.register_optimizer_step_post_hook(self._after)

    def detach(self) -> None:
        """Remove the hooks with these functions, also where a signal cut ``attach`` short or another object did it."""
        for hooks in (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks):
            for key in [key for key, hook in hooks.items() if hook in (self._before, self._after)]:
                del hooks[key]
        self._attached = False

    remove = detach

    def move_last(self) -> None:
        """Have the function after steps called after all others there: hooks may then change while it is called."""
        hooks = _post_hooks()
        for key in [key for key, hook in hooks.items() if hook == self._after]:
            hooks.move_to_end(key)

    def is_last(self) -> bool:
        """Return whether the function is called last after a step."""
        hooks = _post_hooks()
        return bool(hooks) and next(reversed(hooks.values())) == self._after


def _post_hooks() -> OrderedDict[int, Any]:
    return torch_optimizer._global_optimizer_post_hooks  # type: ignore[return-value]


class _Versions:
    """The versions of some parameters of an optimizer, which torch raises where their values change in place."""

    def __init__(self, optimizer: Any) -> None:
        self.sum = -1
        """Their sum when it was read last; -1 before."""
        self.parameters: list[weakref.ref[Any]] = []
        """A parameter that the program drops leaves the list."""
        self._choose(optimizer)
        self.visible = False
        """Whether a step has changed them: torch's fused optimizers, and kernels of other packages, do not."""

    def _choose(self, optimizer: Any) -> None:
        every = [one for group in optimizer.param_groups for one in group["params"]]
        every = [one for one in every if one.grad is not None] or every
        chosen: list[weakref.ref[Any]] = []
        chosen += [weakref.ref(one, chosen.remove) for one in every[:: len(every) // SAMPLED_PARAMETERS + 1]]
        self.parameters = chosen

    def are_still(self, optimizer: Any) -> bool:
        """Return whether the step changed no parameter with a gradient; choose others where none of these has one."""
        if any((one := ref()) is not None and one.grad is not None for ref in self.parameters):
            return self.visible
        self._choose(optimizer)
        return False


class ModelOptimizers:
    """Tell the optimizers that train a model: those given, or all that hold its parameters. A ``Probe``.

    An optimizer that is made later for parameters of the model trains it too, as one does after a part is unfrozen.
    """

    def __init__(self, model: nn.Module, given: tuple[Any, ...]) -> None:
        self.given = len(given)
        """How many were given: steps of others are then none of the model's."""
        self._model = weakref.ref(model)
        self._known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._versions: weakref.WeakKeyDictionary[Any, _Versions] = weakref.WeakKeyDictionary()
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        for one in given:
            self._known[one] = True

    def attach(self) -> None:
        """Notice optimizers that are made from now on."""
        if self.given:
            _INIT.hold(self)
            _INIT.listen(self._made.add)

    def remove(self) -> None:
        """Notice no more of them."""
        if self.given:
            _INIT.ignore(self._made.add)
            _INIT.release(self)

    def begins(self, optimizer: Any) -> bool:
        """Note a step whose end is compared with its begin; return False where another optimizer was given."""
        if self.given and not self.trains(optimizer):
            return False
        versions = self._versions.get(optimizer) or self._follow(optimizer)
        versions.sum = sum(map(_version_of, map(_tensor_of, versions.parameters)))
        return True

    def moved(self, optimizer: Any, *, began: bool = True) -> bool:
        """Return whether a step changed parameters; True where that was never seen.

        An optimizer with its own accumulation or loss scaling may return at once. Without ``began`` the step is
        compared with the end of the last one, and the program may have changed parameters between them.
        """
        versions = self._versions.get(optimizer) or self._follow(optimizer)
        before, versions.sum = versions.sum, sum(map(_version_of, map(_tensor_of, versions.parameters)))
        moved = before not in (-1, versions.sum)
        versions.visible |= moved and began
        return moved or not versions.are_still(optimizer)

    def _follow(self, optimizer: Any) -> _Versions:
        versions = self._versions[optimizer] = _Versions(optimizer)
        return versions

    def trains(self, optimizer: Any) -> bool:
        """Return whether the steps of an optimizer are updates of the model."""
        known = self._known.get(optimizer)
        if known is None:
            counts = not self.given or optimizer in self._made
            known = self._known[optimizer] = counts and self._holds_parameters(optimizer)
        return known or not (self.given or any(self._known.values()))

    def _holds_parameters(self, optimizer: Any) -> bool:
        model = self._model()
        held = {id(one) for group in getattr(optimizer, "param_groups", ()) for one in group["params"]}
        return model is not None and any(id(one) in held for one in model.parameters())  # most often the first one is
