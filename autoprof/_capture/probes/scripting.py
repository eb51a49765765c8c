"""``torch.jit.script`` compiles a module's hooks with it, and cannot compile ours: it is given a copy without them.

torch asks a module for ``__prepare_scriptable__`` and scripts what that returns. While a session is open every module
has such a method; a module without hooks of ours, and with none below it, returns itself.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from .compiling import HOOKS, is_ours
from .handle import Handle

_METHOD = "__prepare_scriptable__"
_users: list[object] = []


def hide_from_script() -> Handle:
    """Keep our hooks from ``torch.jit.script`` until the handle is removed. Sessions share it."""
    handle, user = Handle(), object()

    def leave() -> None:
        if user in _users:
            _users.remove(user)
        if not _users and vars(nn.Module).get(_METHOD) is _without_hooks:
            delattr(nn.Module, _METHOD)

    handle.add(leave)
    _users.append(user)
    if not hasattr(nn.Module, _METHOD):
        setattr(nn.Module, _METHOD, _without_hooks)
    return handle


def _without_hooks(module: nn.Module) -> nn.Module:
    """Return a shell around the module's own parameters, buffers and children, without hooks of ours."""
    scripted = isinstance(module, torch.jit.ScriptModule)
    if scripted or not any(is_ours(hook) for one in module.modules() for name in HOOKS for hook in _hooks(one, name)):
        return module
    shell = type(module).__new__(type(module))
    vars(shell).update(vars(module))
    vars(shell)["_modules"] = vars(module)["_modules"].copy()  # torch puts the children's shells in there
    for name in HOOKS:
        kept = OrderedDict((key, hook) for key, hook in vars(module)[name].items() if not is_ours(hook))
        vars(shell)[name] = kept
    return shell


def _hooks(module: nn.Module, name: str) -> Any:
    return vars(module).get(name, {}).values()
