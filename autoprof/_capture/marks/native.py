"""Load the extension in C, which records marks below the cost of Python, where it was built."""

from __future__ import annotations

import os
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules import module as _module

from . import codes
from .source_hash import source_hash

try:
    from . import _c
except ImportError:  # installed without a compiler, or an interpreter without the GIL
    _c = None  # type: ignore[assignment]

PURE_VARIABLE: Final = "AUTOPROF_PURE"
"""Environment variable that, when not empty, switches the extension off."""


def _traced_call(*_args: Any) -> None:
    """Do nothing: torch.compile traces this function in place of a hook in C, so compiled graphs hold no hook."""


def _hooks_of_all_modules() -> tuple[dict[int, Any], ...]:
    """Return torch's tables of hooks that are called for every module."""
    names = "backward_pre_hooks", "backward_hooks", "forward_hooks", "forward_pre_hooks"
    # A table that is missing counts as one with hooks: then torch's own call decides.
    return tuple(getattr(_module, f"_global_{name}", {0: None}) for name in names)


def _own_call_impl() -> Any:
    """Return torch's own ``Module._call_impl``; where another package has replaced it, an object that is none."""
    found = vars(nn.Module).get("_call_impl")
    return found if getattr(found, "__module__", "") == _module.__name__ else object()


def _load() -> Any:
    """Return the extension, given torch's functions that its hooks call, or None for a build of other sources."""
    if _c is None or source_hash() not in (None, getattr(_c, "SOURCE_HASH", None)):
        return None
    if any(getattr(codes, name) != code for name, code in _c.CODES.items()):
        return None
    _c.configure(
        tensor_type=torch.Tensor,
        graph_task_id=torch._C._current_graph_task_id,
        sequence_nr=torch._C._autograd._get_sequence_nr,
        traced_call=_traced_call,
        tracing_state=torch._C._get_tracing_state,
        call_impl=_own_call_impl(),
        global_hooks=_hooks_of_all_modules(),
    )
    return _c


extension: Any = _load()
"""The extension in C, or None."""


def uses_extension() -> bool:
    """Tell whether new recorders use the extension."""
    return extension is not None and not os.environ.get(PURE_VARIABLE)
