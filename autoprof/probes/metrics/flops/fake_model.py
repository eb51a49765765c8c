"""A copy of the model with fake tensors: the same modules and shapes, no values, no memory, nothing shared.

The user's model is only read. A forward writes to the copy's buffers, cached masks and counters. The user's hooks are
not copied: they would store fake tensors where the user expects real ones.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.nn.modules import module as module_globals

from ....base.names import quoted
from .flop_count import Uncountable

if TYPE_CHECKING:
    from ....targets.tree import ModuleNode

_FORWARD_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_ALL_HOOKS: Final = (
    *_FORWARD_HOOKS, "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_GLOBAL_HOOKS: Final = (
    "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks",
)  # fmt: skip


class _LocalBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Replaces ``SyncBatchNorm``, which would wait for other ranks; neither has counted operations."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass


def fake_tensor(tensor: Tensor, mode: FakeTensorMode, where: str) -> Tensor:
    """Return a fake leaf tensor of the same shape, strides, type and device; ``Uncountable`` names ``where``."""
    if type(tensor) not in (Tensor, nn.Parameter):
        raise Uncountable(f"{where} is a {type(tensor).__qualname__}: it is sharded, quantized or lazy")
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise Uncountable(f"{where} is sparse, nested or quantized")
    with mode, torch.no_grad():
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    needs_grad = tensor.requires_grad and tensor.is_leaf
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(made, requires_grad=needs_grad)
    return made.requires_grad_(needs_grad)


def fake_copy(model: nn.Module, mode: FakeTensorMode) -> tuple[dict[str, nn.Module], tuple[str, ...]]:
    """Copy the model without compiling and distributing wrappers; ``Uncountable`` where that is impossible.

    Return the copies of its modules by fqn, and a note on modules whose hooks are left out.
    """
    from ....targets.tree import walk  # targets import the configuration's packages, which is slow

    nodes = walk(model)
    _refuse(nodes)
    memo: dict[int, Any] = {}
    noted = [fqn for node in nodes for fqn in _prepare(node.inner, node.fqn, mode, memo)]
    for module in model.modules():  # also wrappers, and the modules that only they hold
        _prepare(module, "", mode, memo)
    try:
        with mode, FakeCopyMode(mode):  # also tensors outside parameters, buffers and attributes of modules
            for node in reversed(nodes):  # modules inside a compiled one first
                if node.module is not node.inner:
                    memo[id(node.module)] = copy.deepcopy(node.inner, memo)
            copy.deepcopy(nodes[0].inner, memo)
    except Uncountable:
        raise
    except Exception as error:
        raise Uncountable(f"deep-copying the model failed: {type(error).__name__}: {error}") from error
    copies: dict[str, nn.Module] = {}
    for node in nodes:
        copied = memo.get(id(node.inner))
        if copied is None or copied is node.inner:
            raise Uncountable(f"{_place(node.fqn)} is not copied with the model")
        if isinstance(copied, nn.SyncBatchNorm):
            copied.__class__ = _LocalBatchNorm  # type: ignore[assignment]
        copies[node.fqn] = copied
    return copies, (f"without the FLOPs of hooks on {', '.join(noted)}",) if noted else ()


def _refuse(nodes: Sequence[ModuleNode]) -> None:
    if any(getattr(module_globals, name, None) for name in _GLOBAL_HOOKS):
        raise Uncountable("global module hooks are registered; they would see fake tensors")
    for node in nodes:
        if any(name.startswith(("FSDP", "FullyShardedDataParallel")) for name in node.class_names):
            raise Uncountable(f"{_place(node.fqn)} is sharded: no rank has its whole parameters")
        if isinstance(node.inner, torch.jit.ScriptModule):
            raise Uncountable(f"{_place(node.fqn)} is scripted or traced")
        forward = vars(node.inner).get("forward")
        if isinstance(forward, FunctionType) and forward.__closure__:
            raise Uncountable(f"the forward of {_place(node.fqn)} was replaced by a closure over other objects")


def _prepare(module: nn.Module, fqn: str, mode: FakeTensorMode, memo: dict[int, Any]) -> list[str]:
    """Put fake tensors and empty hook tables into the deep copy's memo; return the module's name if it had hooks."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items(), *vars(module).items()):
        if isinstance(tensor, Tensor) and id(tensor) not in memo:
            memo[id(tensor)] = fake_tensor(tensor, mode, quoted(f"{fqn}.{name}" if fqn else name))
    user_hooks = False
    for name in _ALL_HOOKS:
        hooks = vars(module).get(name)
        if not isinstance(hooks, dict) or id(hooks) in memo:
            continue
        kept: OrderedDict[int, Any] = OrderedDict()
        memo[id(hooks)] = kept
        if name not in _FORWARD_HOOKS:
            continue
        for key, hook in hooks.items():
            if _belongs_to(hook, "torch.nn.utils"):  # weight_norm and similar compute the weight in a hook
                kept[key] = copy.deepcopy(hook)
            elif not _belongs_to(hook, "autoprof"):
                user_hooks = True
    return [_place(fqn)] if user_hooks else []


def _belongs_to(hook: Any, package: str) -> bool:
    function = hook.__func__ if isinstance(hook, MethodType) else hook
    # Methods written in C have ``__module__`` None: their type has the module.
    owner = getattr(function, "__module__", None) or type(hook).__module__
    return str(owner).split(".")[: package.count(".") + 1] == package.split(".")


def _place(fqn: str) -> str:
    return quoted(fqn) if fqn else "the model"
