"""The tree of a model's modules: without wrappers, shared modules once, never-called containers recognised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from torch import nn

from ..base.weak import Weak

_WRAPPED_AS: Final = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "AveragedModel": "module",
    "DeepSpeedEngine": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "ActivationWrapper": "_checkpoint_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
    "OptimizedModule": "_orig_mod",
    "PeftModel": "base_model",
    "BaseTuner": "model",
    "_FabricModule": "_forward_module",
}
"""The attribute of the wrapped module for each class of wrapper, by name, so that none is imported."""

_TIMED_OUTSIDE: Final = frozenset({"PeftModel", "BaseTuner", "OptimizedModule"})
"""Wrappers that run the wrapped module without its hooks: PEFT's by its ``forward``, or compiled."""


@dataclass(eq=False)
class ModuleNode:
    """A place in the model: the module to attach to, every fqn of it, and its class names.

    A wrapper and the module that it wraps are one node. Its ``module`` is the wrapped one, which a checkpoint calls
    again to recompute; of a compiled module, and of one with PEFT's adapters, it is the wrapper, because hooks on the
    module inside the wrapper do not fire. A node keeps neither of the two alive.
    """

    if TYPE_CHECKING:
        module: nn.Module
        inner: nn.Module
    else:
        module: nn.Module = Weak()
        inner: nn.Module = Weak()
    class_names: tuple[str, ...]
    fqns: list[str] = field(default_factory=list)
    children: list[ModuleNode] = field(default_factory=list)
    child_names: list[str] = field(default_factory=list)
    """The attribute of each of the ``children``."""

    @property
    def fqn(self) -> str:
        """The first fqn, in the order of the model."""
        return self.fqns[0]

    @property
    def class_name(self) -> str:
        """The class of the module without its wrappers, as its author wrote it."""
        return self.class_names[-1]

    @property
    def called(self) -> bool:
        """Whether the module is ever called; a container without ``forward`` is not."""
        return self.module is not self.inner or _has_forward(self.inner, self.class_name)

    def named_children(self) -> Iterator[tuple[str, ModuleNode]]:
        """Yield the children with the names of their attributes."""
        return zip(self.child_names, self.children, strict=True)

    def along(self, path: Iterable[str]) -> Iterator[tuple[ModuleNode, int]]:
        """Yield the nodes on a path of attributes, as far as the tree has them; wrappers are no nodes of their own.

        With each node comes the number of earlier calls, which follows the attribute: 1 in ``fc@1``.
        """
        node = self
        for attribute in path:
            name, _, earlier = attribute.partition("@")
            inner = dict(node.named_children()).get(name)
            if inner is not None:
                node = inner
                yield node, int(earlier or 0)
            elif name not in _WRAPPED_AS.values():
                return

    def called_below(self) -> Iterator[ModuleNode]:
        """Yield the nearest nodes below that are called, looking through containers that are not."""
        pending, seen = list(reversed(self.children)), {self}
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.called:
                yield node
            else:
                pending.extend(reversed(node.children))


def walk(model: nn.Module) -> list[ModuleNode]:
    """Return the model's nodes in the order of ``named_modules``, the model first; a shared module is one node."""
    known: dict[int, ModuleNode] = {}
    order: list[ModuleNode] = []
    pending: list[tuple[str, ModuleNode, frozenset[ModuleNode]]] = [("", _node(model, known), frozenset())]
    while pending:
        fqn, node, above = pending.pop()
        # Paths followed to one shared module, so that modules shared within shared ones do not multiply.
        if node in above or len(node.fqns) == 64 or fqn in node.fqns:
            continue
        children = [(name, _node(child, known)) for name, child in node.inner._modules.items() if child is not None]
        if not node.fqns:
            order.append(node)
            node.children = [child for _, child in children]
            node.child_names = [name for name, _ in children]
        node.fqns.append(fqn)
        below = above | {node}
        pending.extend((f"{fqn}.{name}" if fqn else name, child, below) for name, child in reversed(children))
    return order


def unwrap(module: nn.Module) -> nn.Module:
    """Return the module inside all its wrappers."""
    while (found := _wrapped(module)) is not None:
        module = found[1]
    return module


def find_module(model: nn.Module, fqn: str) -> nn.Module | None:
    """Return the module at this place in the model, to attach to; None where there is none."""
    return next((node.module for node in walk(model) if fqn in node.fqns), None)


def _node(module: nn.Module, known: dict[int, ModuleNode]) -> ModuleNode:
    """Return the node of the module, made on the first visit: unwrapped, with the names of all its classes."""
    attached = None
    class_names: list[str] = []
    inner = module
    while (found := _wrapped(inner)) is not None:
        kind, wrapped = found
        class_names.append(type(inner).__name__)
        if attached is None and kind in _TIMED_OUTSIDE:
            attached = inner
        inner = wrapped
    class_names += _class_names(inner)
    return known.setdefault(id(inner), ModuleNode(inner if attached is None else attached, inner, tuple(class_names)))


def _wrapped(module: nn.Module) -> tuple[str, nn.Module] | None:
    """Return the kind of wrapper that the module is, and the module that it wraps; None where it is no wrapper."""
    for cls in type(module).__mro__:
        attribute = _WRAPPED_AS.get(cls.__name__)
        child = None if attribute is None else module._modules.get(attribute)
        if child is not None:
            return cls.__name__, child
    return None


def _class_names(module: nn.Module) -> list[str]:
    """Return the names of the module's class, the author's own name last."""
    name = type(module).__name__
    ancestors = [cls.__name__ for cls in type(module).__mro__[1:]]
    if "ScriptModule" in ancestors:
        return [name, str(module.original_name)]
    # Prefixes that torch adds to the name of a class when it replaces a module's class.
    return [
        name,
        *(base for base in ancestors if name in [prefix + base for prefix in ("FSDP", "Parametrized", "Lazy")]),
    ]


def _has_forward(module: nn.Module, class_name: str) -> bool:
    if "forward" in vars(module):
        return True
    # Classes whose `forward` or `__call__` only raises an error.
    classes = [
        cls
        for cls in type(module).__mro__
        if cls not in (nn.Module, nn.ParameterList, nn.ParameterDict) and cls.__name__ != "LightningModule"
    ]
    if any(cls.__name__ == "ScriptModule" for cls in classes):
        return class_name not in ("ModuleList", "ModuleDict")  # a scripted container has the class of a scripted module
    return any("forward" in vars(cls) or "__call__" in vars(cls) for cls in classes)
