"""Find the outermost modules that hold the trained parameters, and put several of them into one."""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import compress
from types import FrameType

from torch import nn

from .._process.ranks import world_size


class Models(nn.Module):
    """Several models that one program trains together, such as the generator and the discriminator of a GAN."""

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, model in models.items():
            self._modules[name] = model


def find_models(trained: AbstractSet[int], called: nn.Module | None) -> list[nn.Module]:
    """Return the fewest outermost modules that hold all these parameters, given by id; that of ``called`` first.

    All modules of the process are searched: an optimizer knows parameters only, and a wrapper such as
    ``DistributedDataParallel``, or a model that holds others, knows more than the module that is called first.
    """
    modules = list(_living_modules())
    parents: dict[int, list[nn.Module]] = {}
    owned: dict[int, set[int]] = {}
    for module in modules:
        for child in _children(module):
            parents.setdefault(id(child), []).append(module)
        owned[id(module)] = _own_parameters(module) & trained
    covers: dict[int, set[int]] = {}
    roots: dict[int, nn.Module] = {}
    for module in modules:
        if owned[id(module)]:
            for root in _outermost(module, parents):
                roots[id(root)] = root
                covers.setdefault(id(root), set()).update(owned[id(module)])
    around = set() if called is None else {id(one) for one in _outermost(called, parents)}
    return _cover(roots, covers, around)


def _cover(roots: Mapping[int, nn.Module], covers: Mapping[int, set[int]], around: Collection[int]) -> list[nn.Module]:
    """Choose modules until every parameter is covered: first those around the called one, then those with most."""
    chosen: list[nn.Module] = []
    missing: set[int] = set().union(*covers.values())
    for candidates in ([key for key in roots if key in around], list(roots)):
        while missing and candidates:
            best = max(candidates, key=lambda key: len(covers[key] & missing))
            if not covers[best] & missing:
                break
            chosen.append(roots[best])
            missing -= covers[best]
    return chosen


def _living_modules() -> Iterator[nn.Module]:
    """Yield every module of the process; the class alone decides, so no property of a proxy object is run."""
    kinds: dict[int, type] = {}  # by id: a metaclass may make its classes unhashable
    pending: list[type] = [nn.Module]
    while pending:
        kind = pending.pop()
        if id(kind) not in kinds:
            kinds[id(kind)] = kind
            pending += type.__subclasses__(kind)
    kinds.pop(id(Models), None)
    objects = gc.get_objects()  # hundreds of thousands: the loop over them is in C
    for one in compress(objects, map(kinds.__contains__, map(id, map(type, objects)))):
        if "_modules" in one.__dict__:
            yield one


def _children(module: nn.Module) -> list[nn.Module]:
    with suppress(Exception):  # a scripted module's table may raise
        return [child for child in module._modules.values() if child is not None]
    return []


def _own_parameters(module: nn.Module) -> set[int]:
    with suppress(Exception):
        return {id(one) for one in module._parameters.values() if one is not None}
    return set()


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
    # The classes that a framework puts around a model whose ranks train together.
    wrappers = [
        one
        for one in _living_modules()
        if type(one).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel")
        and any(child is model for child in _children(one))
    ]
    return wrappers[0] if len(wrappers) == 1 else model
