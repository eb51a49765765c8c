"""Unfused attention: a product, a softmax of it, a product of that; found by following tensors through a count."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import ref

from torch import Tensor
from torch.utils._pytree import tree_leaves


class _Followed(NamedTuple):
    """A tensor of scores or weights, and the FLOPs of its first product."""

    tensor: ref[Tensor]
    flops: int
    is_weights: bool
    by_sdpa: bool


class AttentionDetector:
    """Follow scores and weights from operator to operator, in one forward.

    A softmax between two products is attention, also with a scale, mask or dropout in between: those keep the number
    of elements.
    """

    def __init__(self) -> None:
        self._followed: dict[int, _Followed] = {}

    def follow(self, name: str, args: Any, result: Any, flops: int) -> tuple[int, bool] | None:
        """Follow one operator of a forward; return the FLOPs of an attention that it ends, and whether by SDPA."""
        # Used only by the math kernel of `scaled_dot_product_attention`.
        softmax_of_sdpa = "_safe_softmax"
        first = next((one for one in args if isinstance(one, Tensor)), None)
        # torch's operators for batched matrix products, also from `@` and `einsum`.
        if name in {"bmm", "baddbmm"}:
            operands = args[1:] if name == "baddbmm" else args
            scores = self._find(next(iter(operands), None))
            if isinstance(result, Tensor):
                self._followed[id(result)] = _Followed(ref(result), flops, False, False)
            return (scores.flops + flops, scores.by_sdpa) if scores is not None and scores.is_weights else None
        if name in ("_softmax", softmax_of_sdpa):
            scores = self._find(first)
            over_last = first is not None and len(args) > 1 and args[1] in (-1, first.dim() - 1)
            if scores is not None and not scores.is_weights and over_last:
                self._keep(result, scores._replace(is_weights=True, by_sdpa=name == softmax_of_sdpa))
            return None
        if flops or "norm" in name:  # the outputs of layers and norms are no scores
            return None
        for one in args:
            if isinstance(one, Tensor) and (scores := self._find(one)) is not None:
                same = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)][:1]
                if same and same[0].numel() == one.numel():
                    self._keep(same[0], scores)
                break
        return None

    def _find(self, tensor: Any) -> _Followed | None:
        scores = self._followed.get(id(tensor))
        return scores if scores is not None and scores.tensor() is tensor else None  # ids are reused

    def _keep(self, tensor: Any, followed: _Followed) -> None:
        if isinstance(tensor, Tensor):
            self._followed[id(tensor)] = followed._replace(tensor=ref(tensor))
