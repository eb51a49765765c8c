"""Products of one-hot rows and a matrix, which read rows of the matrix; found by following tensors through a count."""

from __future__ import annotations

from collections.abc import MutableMapping
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


class OneHotDetector:
    """Follow one-hot rows from operator to operator, in one forward.

    They come from ``one_hot``, which compares indices with all columns, from a scatter of ones, or from rows of an
    identity matrix.
    """

    def __init__(self) -> None:
        self._rows: MutableMapping[Tensor, bool] = WeakIdKeyDictionary()
        """The tensors of one-hot rows; False for an identity matrix, of which rows are still to be chosen."""

    def follow(self, name: str, args: Any, result: Any) -> bool:
        """Follow one operator of a forward; return whether it multiplies one-hot rows with a matrix."""
        if name in PRODUCTS:
            return isinstance(operand := args[PRODUCTS[name]], Tensor) and self._rows.get(operand) is True
        if not isinstance(result, Tensor):
            return False
        if name == "eye":
            self._rows[result] = False
        elif not args or not isinstance(first := args[0], Tensor):
            pass
        elif name in SAME and first in self._rows:
            self._rows[result] = self._rows[first]
        elif (
            (name in CHOOSING and first in self._rows)
            or (name == "eq" and _compares_with_all(first, args[1]))
            or (name in ("scatter", "scatter_") and not isinstance(args[3], Tensor) and args[3] == 1)
        ):
            self._rows[result] = True
        return False


def _compares_with_all(indices: Tensor, columns: Any) -> bool:
    is_row = isinstance(columns, Tensor) and columns.dim() == 1 < columns.numel()
    return is_row and bool(indices.dim()) and indices.shape[-1] == 1 and not indices.is_floating_point()
