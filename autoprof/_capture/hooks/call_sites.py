"""Call functions around the calls of modules, without a hook on any module.

``nn.Module.__call__`` asks for the class attribute ``_compiled_call_impl`` and calls it in place of ``_call_impl``.
While a session is open, a table takes the attribute's place in the classes of marked modules: for a module in the
table it returns the module's *site*, which calls its entries and, between them, what torch would have called. Nothing
is stored in a module. So copies, pickles and replicas of a module have no marks, and code that asks whether a module
has hooks finds none. ``nn.Module`` itself stays as it is: graphs of modules that dynamo traces through their call are
guarded by its attribute, and from torch 2.15 on also by the absence of the attribute in their classes. So the table
leaves the classes of such modules for good once torch compiles (``loses_marks``).

The table and its sites are in C: ``marks/call_site.c``.
"""

from __future__ import annotations

from functools import partial
from inspect import getattr_static
from types import FunctionType
from typing import Any, Final
from weakref import WeakSet

import torch
from torch import nn

from ..._process.replace import Attribute, InCompiler, Replacement, has_compiled
from ..handle import Handle
from ..marks.native import extension

NAME: Final = "_compiled_call_impl"
"""The attribute, which belongs to ``nn.Module.compile``."""

table: Final[Any] = None if extension is None else extension.CallTable()
"""The modules of all sessions."""
CallEntry: Final[Any] = None if extension is None else extension.CallEntry


def _alias_replica(original: Any, listeners: list[Any]) -> Any:
    def _replicate_for_data_parallel(self: nn.Module) -> nn.Module:
        replica: nn.Module = original(self)
        site = table.find(self)
        if site is not None:
            table.alias(replica, site, wraps=False)
        return replica

    return _replicate_for_data_parallel


_attributes: Final[dict[type, Replacement]] = {}
"""The replaced attributes by the class that has them."""
_keepers: Final[list[Handle]] = []
_models: Final[WeakSet[nn.Module]] = WeakSet()
"""The models of the sessions, in whose modules torch may trace a call."""
_REPLICATE: Final = Replacement(
    Attribute(nn.Module, "_replicate_for_data_parallel"), _alias_replica, in_compiler=InCompiler.PRESENT
)


def keep_calls(model: nn.Module) -> Handle:
    """Keep the table in place for a model, also while it has no sites, until the handle is removed."""
    _models.add(model)
    handle = Handle()
    _keepers.append(handle)
    handle.add(partial(_keep_no_longer, handle))
    _REPLICATE.hold(handle)
    handle.add(partial(_REPLICATE.release, handle))
    return handle


def _keep_no_longer(handle: Handle) -> None:
    if handle in _keepers:
        _keepers.remove(handle)
    _release()


def site_of(module: nn.Module) -> Any:
    """Return the site of a module; have the table in place."""
    place_table(module)
    return table.site(module)


def place_table(module: nn.Module) -> None:
    """Have the table in place in the class of a module, where its ``forward`` is.

    A class that torch derives from it for a while, as for a parametrization, inherits the attribute.
    """
    kind = type(module)
    written = (cls for cls in kind.__mro__ if "forward" in vars(cls) and cls is not nn.Module)
    kind = next(written, kind)
    if kind not in _attributes:
        place = Attribute(kind, NAME)
        in_compiler = partial(_in_compiler, kind)
        _attributes[kind] = Replacement(place, lambda _original, _listeners: table, in_compiler=in_compiler)
        _attributes[kind].hold(table)


_GUARDS_CLASSES: Final = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
"""Whether graphs guard classes also for what a module alone has: torch 2.15 does, 2.13 not; 2.14 was not tried."""


def _in_compiler(kind: type) -> InCompiler:
    """Return whether the table leaves a class for good once torch compiles."""
    modules = (module for model in [*_models] for module in model.modules())
    traced = _GUARDS_CLASSES and any(isinstance(module, kind) and _is_traced(module) for module in modules)
    return InCompiler.RETIRED if traced or _has_own_call(kind) else InCompiler.ABSENT


def loses_marks(module: nn.Module) -> bool:
    """Return whether a module has no marks outside of compiled graphs, because torch has compiled."""
    kinds = (kind for kind in type(module).__mro__ if kind in _attributes)
    return has_compiled() and any(_in_compiler(kind) is InCompiler.RETIRED for kind in kinds)


def _is_traced(module: nn.Module) -> bool:
    """Return whether dynamo traces a module's call; in the usual case it traces the ``forward`` of its class alone.

    The conditions are those of ``UnspecializedNNModuleVariable.call_function`` in torch 2.15.
    """
    if _is_dynamos(type(module)) or isinstance(module, torch.jit.ScriptModule):
        return False
    own = vars(module)
    replaced = [own[name] for name in ("forward", "_call_impl") if name in own]
    # A method that was compiled alone is called from outside of its graph.
    if any(not hasattr(one, "_torchdynamo_orig_callable") for one in replaced):
        return True
    # Dynamo knows the modules that FSDP manages, and calls their hooks outside of graphs.
    hooks = (hook for name in _HOOKS for hook in (own.get(name) or {}).values())
    if any(not str(getattr(hook, "__module__", "")).startswith("torch.distributed.") for hook in hooks):
        return True
    return type(getattr_static(type(module), "forward", None)) is not FunctionType


def _is_dynamos(kind: type) -> bool:
    """Return whether a class is one of dynamo's wrappers, whose call it never traces."""
    return kind.__module__.startswith("torch._dynamo.")


_HOOKS: Final = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
"""The hooks of a module, by the names of their tables."""


def _has_own_call(kind: type) -> bool:
    """Return whether a class of modules, or one derived from it, has a ``__call__`` that is not torch's.

    Dynamo traces such a ``__call__`` and guards each class on the way to ``nn.Module``.
    """
    if kind.__call__ is not nn.Module.__call__:
        return not _is_dynamos(kind)
    return any(map(_has_own_call, kind.__subclasses__()))


def _release() -> None:
    """Leave the attributes of all classes as they were, unless there are sites or sessions."""
    if not len(table) and not _keepers:
        while _attributes:
            _, replacement = _attributes.popitem()
            replacement.release(table)


def drop_site(module: nn.Module) -> None:
    """Remove the site of a module, unless something is called there; a table without sites leaves its place."""
    site = table.find(module)
    if site is not None and not site.entries and not site.before:
        table.drop(module)
    _release()
