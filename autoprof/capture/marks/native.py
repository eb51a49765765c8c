"""Load the extension in C, which records marks below the cost of Python."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any, Final

import torch

from ...errors import SessionError
from .missing import Missing, why_missing
from .source_hash import source_hash

_import_error = ""
try:
    from . import _c
except ImportError as error:
    _c = None  # type: ignore[assignment]
    _import_error = str(error)

_graph_task_id: Final = torch._C._current_graph_task_id
_sequence_nr: Final = torch._C._autograd._get_sequence_nr


def _addresses() -> dict[str, int]:
    """Return the addresses of two functions of torch in C++, 0 where it has none: calls of Python cost ten times more.

    They take nothing and return a number, which has to be that of the same function in Python.
    """
    symbols = {
        "graph_task_id_at": ("_ZN5torch8autograd25get_current_graph_task_idEv", ctypes.c_int, _graph_task_id),
        "sequence_nr_at": ("_ZN2at15sequence_number4peekEv", ctypes.c_uint64, _sequence_nr),
    }
    found = dict.fromkeys(symbols, 0)
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(str(torch._C.__file__))
        for name, (symbol, kind, same) in symbols.items():
            function = getattr(library, symbol)
            function.restype = kind
            if function() == same():
                found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return found


def _traced_mark(_mark: Any, *_gradients: Any) -> None:
    """Do nothing: dynamo traces this where compiled autograd meets a mark, which is in C. Such a pass has no marks."""


def _load() -> Any:
    """Return the extension, given torch's functions that its hooks call, or None for a build of other sources."""
    if _c is None or source_hash() not in (None, getattr(_c, "SOURCE_HASH", None)):
        return None
    _c.configure(
        tensor_type=torch.Tensor,
        graph_task_id=_graph_task_id,
        sequence_nr=_sequence_nr,
        traced_mark=_traced_mark,
        **_addresses(),
    )
    return _c


extension: Any = _load()
"""The extension in C; None where it was not built, or from other sources. Saved runs can be read without it."""


def missing_extension() -> Missing | None:
    """Return why there is no extension, and the remedy; None where there is one."""
    return why_missing(loaded=_c is not None, error=_import_error) if extension is None else None


def require_extension() -> Any:
    """Return the extension in C. Raises ``SessionError`` where it is missing."""
    missing = missing_extension()
    if missing is not None:
        raise SessionError(f"nothing can be recorded: autoprof's extension in C {missing.reason}; {missing.remedy}")
    return extension
