"""Load the extension in C, which records marks below the cost of Python, where it was built."""

from __future__ import annotations

import os
from typing import Any, Final

import torch

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
    )
    return _c


extension: Any = _load()
"""The extension in C, or None."""


def uses_extension() -> bool:
    """Tell whether new recorders use the extension."""
    return extension is not None and not os.environ.get(PURE_VARIABLE)
