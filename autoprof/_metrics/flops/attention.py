"""Attention written out: a product, a softmax of it, a product of that. Found by following tensors through a count."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from weakref import ref

from torch import Tensor
from torch.utils._pytree import tree_leaves

PRODUCTS: Final = frozenset({"bmm", "baddbmm"})
"""What torch makes of a product of matrices with a batch or heads in front, ``@`` and ``einsum`` alike."""
SOFTMAX: Final = "_softmax"
SOFTMAX_OF_SDPA: Final = "_safe_softmax"
"""Only the math kernel of ``scaled_dot_product_attention`` asks for this one."""


class _Mark(NamedTuple):
    tensor: ref[Tensor]
    flops: int
    is_weights: bool
    by_sdpa: bool


class AttentionWatch:
    """Follow scores and weights from operator to operator, in one forward.

    A softmax between two products is attention, whatever is done to the scores or weights in between (scale, mask,
    dropout): all of that keeps their number.
    """

    def __init__(self) -> None:
        self._marks: dict[int, _Mark] = {}

    def see(self, name: str, args: Any, result: Any, flops: int) -> tuple[int, bool] | None:
        """Take an operator of a forward; return the work of an attention that ends with it, and if SDPA made it."""
        found = None
        first = next((one for one in args if isinstance(one, Tensor)), None)
        if name in PRODUCTS:
            operands = args[1:] if name == "baddbmm" else args
            mark = self._mark(next(iter(operands), None))
            if mark is not None and mark.is_weights:
                found = mark.flops + flops, mark.by_sdpa
            if isinstance(result, Tensor):
                self._marks[id(result)] = _Mark(ref(result), flops, False, False)
            return found
        if name in (SOFTMAX, SOFTMAX_OF_SDPA):
            mark = self._mark(first)
            over_last = first is not None and len(args) > 1 and args[1] in (-1, first.dim() - 1)
            if mark is not None and not mark.is_weights and over_last:
                self._keep(result, mark._replace(is_weights=True, by_sdpa=name == SOFTMAX_OF_SDPA))
            return None
        if flops or "norm" in name:  # what a layer makes of an attention's output are no scores
            return None
        for one in args:
            if isinstance(one, Tensor) and (mark := self._mark(one)) is not None:
                same = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)][:1]
                if same and same[0].numel() == one.numel():
                    self._keep(same[0], mark)
                break
        return None

    def _mark(self, tensor: Any) -> _Mark | None:
        mark = self._marks.get(id(tensor))
        return mark if mark is not None and mark.tensor() is tensor else None  # a number is given out again

    def _keep(self, tensor: Any, mark: _Mark) -> None:
        if isinstance(tensor, Tensor):
            self._marks[id(tensor)] = mark._replace(tensor=ref(tensor))
