"""Products of one-hot rows and a matrix, which read rows of the matrix; found by following tensors through a count."""

from __future__ import annotations

from collections.abc import MutableMapping
from enum import Enum
from typing import Any, Final

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

PRODUCTS: Final = {"mm": 0, "bmm": 0, "addmm": 1}
"""Products of matrices, with the place of their first operand among the arguments."""
SAME: Final = {
    "_to_copy",
    "view",
    "_unsafe_view",
    "reshape",
    "clone",
    "expand",
    "unsqueeze",
    "squeeze",
    "slice",
    "alias",
}
"""Operators whose result has the values of the tensor that they take."""
CHOOSING: Final = {"index", "index_select", "embedding"}
"""Operators that choose rows of the tensor that they take."""


class _Is(Enum):
    """What the rows of a followed tensor are."""

    ROWS = 1
    IDENTITY = 2
    """An identity matrix, of which rows are still to be chosen."""
    ZEROS = 3
    COLUMNS = 4
    """The numbers of all columns."""


MADE: Final = {
    "eye": _Is.IDENTITY,
    "zeros": _Is.ZEROS,
    "zeros_like": _Is.ZEROS,
    "new_zeros": _Is.ZEROS,
    "arange": _Is.COLUMNS,
}


class OneHotDetector:
    """Follow one-hot rows from operator to operator, in one forward.

    They come from ``one_hot``, which compares an index with the numbers of all columns, from a scatter of one 1 into
    each row of zeros, or from rows of an identity matrix.
    """

    def __init__(self) -> None:
        self._known: MutableMapping[Tensor, _Is] = WeakIdKeyDictionary()

    def follow(self, name: str, args: Any, result: Any) -> bool:
        """Follow one operator of a forward; return whether it multiplies one-hot rows with a matrix."""
        if name in PRODUCTS:
            return isinstance(operand := args[PRODUCTS[name]], Tensor) and self._known.get(operand) is _Is.ROWS
        if not isinstance(result, Tensor):
            return False
        first = args[0] if args and isinstance(args[0], Tensor) else None
        before = None if first is None else self._known.get(first)
        if name in MADE:
            self._known[result] = MADE[name]
        elif first is None:
            pass
        elif name in SAME and before is not None:
            self._known[result] = before
        elif (
            (name in CHOOSING and before is _Is.IDENTITY)
            or (name == "eq" and first.dim() and first.shape[-1] == 1 and self._is_columns(args[1]))
            or (name in ("scatter", "scatter_") and before is _Is.ZEROS and _is_one_each(*args[1:4]))
        ):
            self._known[result] = _Is.ROWS
        elif name.endswith("_"):
            self._known.pop(first, None)  # it has other values now
        return False

    def _is_columns(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.numel() > 1 and self._known.get(value) is _Is.COLUMNS


def _is_one_each(dim: int, index: Tensor, value: Any) -> bool:
    return index.dim() > 0 and index.shape[dim] == 1 and not isinstance(value, Tensor) and value == 1
