"""Find the outermost modules that hold the trained parameters, and put several of them into one."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import FrameType
from typing import Any
from weakref import WeakValueDictionary

from torch import nn

from ...base.process.ranks import world_size


class Models(nn.Module):
    """Several models that one program trains together, such as the generator and the discriminator of a GAN.

    It does not keep them alive.
    """

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._modules: Any = WeakValueDictionary(models)


def find_models(
    trained: AbstractSet[int], called: nn.Module | None, known: Sequence[nn.Module] = ()
) -> list[nn.Module]:
    """Return the fewest outermost modules that hold all these parameters, given by id; that of ``called`` first.

    All modules of the process are searched: an optimizer knows parameters only, and a wrapper such as
    ``DistributedDataParallel``, or a model that holds others, knows more than the module that is called first.
    """
    modules = list(_living_modules(known))
    parents: dict[int, list[nn.Module]] = {}
    for module in modules:
        for child in _members(module._modules):
            parents.setdefault(id(child), []).append(module)
    covers: dict[int, set[int]] = {}
    roots: dict[int, nn.Module] = {}
    for module in modules:
        owned = trained & {id(one) for one in _members(module._parameters)}
        for root in _outermost(module, parents) if owned else ():
            roots[id(root)] = root
            covers.setdefault(id(root), set()).update(owned)
    around = set() if called is None else {id(one) for one in _outermost(called, parents)}
    chosen: list[nn.Module] = []
    missing: set[int] = set().union(*covers.values())
    while missing:
        covered = {key: len(cover & missing) for key, cover in covers.items()}
        best = max(covered, key=lambda key: (key in around and covered[key] > 0, covered[key]))
        chosen.append(roots[best])
        missing -= covers[best]
    return chosen


def living(kind: type, attribute: str, known: Sequence[Any] = ()) -> Iterator[Any]:
    """Yield every object of a class in the process that has an attribute of this name, those in ``known`` first.

    The class alone decides, so no property of a proxy object is run. The collector does not show frozen objects.
    """
    seen = set(map(id, known))
    yield from known
    for one in gc.get_objects():
        if kind in type(one).__mro__ and attribute in one.__dict__ and id(one) not in seen:
            yield one


def _living_modules(known: Sequence[nn.Module] = ()) -> Iterator[nn.Module]:
    yield from (one for one in living(nn.Module, "_modules", known) if type(one) is not Models)


def parameters_of(optimizer: Any) -> set[int]:
    """Return the parameters of an optimizer, by id; none before it is initialised, and of one that is gone."""
    return {id(parameter) for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]}


def _members(table: Mapping[str, Any]) -> list[Any]:
    with suppress(Exception):  # a scripted module's table may raise
        return [one for one in table.values() if one is not None]
    return []


def _outermost(module: nn.Module, parents: Mapping[int, Sequence[nn.Module]]) -> list[nn.Module]:
    """Return the modules around this one that are in no other module; itself, if it is in none."""
    found: list[nn.Module] = []
    pending, seen = [module], {id(module)}
    while pending:
        one = pending.pop()
        around = parents.get(id(one), ())
        if not around:
            found.append(one)
        for parent in around:
            if id(parent) not in seen:
                seen.add(id(parent))
                pending.append(parent)
    return found or [module]


def join_models(models: Sequence[nn.Module], frame: FrameType | None) -> nn.Module:
    """Return the model, or one module that holds all of them under the names that the program gives them."""
    if len(models) == 1:
        return models[0]
    names = _names_in_program(models, frame)
    named: dict[str, nn.Module] = {}
    for model in models:
        wanted = names.get(id(model)) or type(model).__name__
        name, number = wanted, 1
        while name in named or hasattr(nn.Module, name):
            number += 1
            name = f"{wanted}_{number}"
        named[name] = model
    return Models(named)


def _names_in_program(models: Sequence[nn.Module], frame: FrameType | None) -> dict[int, str]:
    """Return the variable or attribute that holds each model, by id: that of the nearest frame that holds all."""
    wanted = {id(model) for model in models}
    while frame is not None:
        names: dict[int, str] = {}
        owner = frame.f_locals.get("self")
        attributes = {} if isinstance(owner, nn.Module) else getattr(owner, "__dict__", {})
        for variables in (frame.f_locals, attributes, frame.f_globals):
            for name, value in list(variables.items()):
                if id(value) in wanted and name != "self" and name.isidentifier():
                    names.setdefault(id(value), name.lstrip("_") or name)
        if len(names) == len(wanted):
            return names
        frame = frame.f_back
    return {}


def calling_frame() -> FrameType | None:
    """Return the innermost frame that is not of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("autoprof."):
        frame = frame.f_back
    return frame


def find_wrapper(model: nn.Module) -> nn.Module:
    """Return the wrapper that a framework has put around a model for several ranks; the model if there is none."""
    if world_size() == 1:
        return model
    wrappers = [
        one
        for one in _living_modules()
        if type(one).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel")
        and any(child is model for child in _members(one._modules))
    ]
    return wrappers[0] if len(wrappers) == 1 else model
