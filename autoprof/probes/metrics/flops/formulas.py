"""FLOPs of operators: torch's own formulas, those that it lacks, and the operators that need one.

The convention is that of ``torch.utils.flop_counter``: matrix products, convolutions and attention count, a
multiplication and an addition as two; elementwise operators and products of two vectors do not. Fourier transforms
count, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import log2, prod
from typing import Any, Final

import torch

Formula = Callable[..., int]


_HEAVY_WORDS: Final = re.compile(
    r"(?:add|badd|sspadd)?(?:mm|bmm|mv)|hspmm|smm|matmul|\w*gemm\w*|q?linear|"
    r"(?:de|q)?conv(?:olution|\d?d)?|depthwise3x3|\w*attention|transformer|rnn|lstm|gru|"
    r"linalg|cholesky|svd|qr|geqrf|or[mg]qr|lu|solve|triangular|lstsq|inverse|eigh?|eigvals|"
    r"(?:log|slog)?det|matrix|fft|[cp]dist|trilinear|sparse"
)
"""Words of operator names (between underscores) of counted kinds: matrix products, convolutions, attention, recurrent
layers, decompositions and solvers, Fourier transforms, distances by products, sparse kernels."""
_HARMLESS_NAMES: Final = frozenset(
    {
        "linalg_vector_norm", "linalg_cross", "linalg_diagonal", "lu_unpack", "embedding_sparse_backward", "sparse_dim",
        "_cudnn_rnn_flatten_weight", "_fused_sdp_choice",
    }
)  # fmt: skip
"""Names with such a word whose operators are not of a counted kind."""


FOURIER: Final = "_fft_"
"""The begin of the names of Fourier transforms, which take complex numbers, and few operations a byte."""


def formulas() -> dict[Any, Formula]:
    """Return the formula of each operator (an ``OpOverloadPacket``); it takes the tensors, and ``out_val``, the result.

    Built for each count, so that a formula registered later with ``torch.utils.flop_counter.register_flop_formula`` is
    used, too.
    """
    from torch.utils.flop_counter import flop_registry  # its first import searches for triton

    aten = torch.ops.aten
    own: dict[Any, Formula] = {getattr(aten, name): formula for name, formula in _OWN.items()}
    # torch 2.4 keeps a formula registered for an operator under its overloads, and looks for the operator.
    registered = {getattr(key, "overloadpacket", key): formula for key, formula in flop_registry.items()}
    for name, same_as in _LIKE.items():
        packet, known = getattr(aten, name, None), getattr(aten, same_as, None)
        if packet is not None and known in registered:
            own[packet] = registered[known]
    return {**own, **registered, aten.convolution_backward: _convolution_backward}


def is_heavy(namespace: str, name: str) -> bool:
    """Return whether an operator without a formula is, or may be, of a counted kind: then there is no figure."""
    # Namespaces whose operators are known by name; operators of any other namespace need a formula.
    if namespace not in {"aten", "prims", "prim", "torchvision", "_c10d_functional", "_dtensor"}:
        return True
    if name in _HARMLESS_NAMES or name.endswith(("lstm_cell", "gru_cell", "lstm_cell_backward", "gru_cell_backward")):
        return False  # the cells' products are separate operators
    return any(_HEAVY_WORDS.fullmatch(word) for word in name.lower().split("_"))


def _convolution_backward(
    grad: Any, inputs: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, output_mask: Any, **_: Any,
) -> int:  # fmt: skip
    """Count each requested gradient (input, weight) like the forward.

    torch's own formula ignores the groups in the weight's gradient: a depthwise one is ``groups`` times too high.
    """
    places = inputs.shape[2:] if transposed else grad.shape[2:]
    forward = 2 * inputs.shape[0] * prod(places) * prod(weight.shape)
    return int(forward * (bool(output_mask[0]) + bool(output_mask[1])))


def _cudnn_rnn(inputs: Any, weights: Any, *_: Any, **__: Any) -> int:
    """Multiply every token with every matrix of every layer and direction once."""
    matrices = [weight.shape for weight in weights if len(weight.shape) == 2]
    return 2 * _tokens(inputs) * sum(int(prod(shape)) for shape in matrices)


def _mkldnn_rnn(inputs: Any, input_weight: Any, hidden_weight: Any, *_: Any, **__: Any) -> int:
    return int(2 * _tokens(inputs) * (prod(input_weight.shape) + prod(hidden_weight.shape)))


def _tokens(inputs: Any) -> int:
    """Count the time steps of all sequences; the last dimension is the features, also of packed sequences."""
    return int(prod(inputs.shape[:-1]))


def _fourier(signal: Any, dim: Any, flops: float) -> int:
    """Count ``flops`` times N log2 N for each transform of N points: 5 of complex points, 2.5 of real ones.

    Those are the operations of the radix-2 algorithm (Cooley and Tukey 1965), by which benchFFT rates all others.
    """
    points, size = prod(signal.shape[one] for one in dim), int(prod(signal.shape))
    return round(flops * size * log2(max(points, 1)))


_OWN: Final[dict[str, Formula]] = {
    "_cudnn_rnn": _cudnn_rnn,
    "_cudnn_rnn_backward": lambda *args, **_: 2 * _cudnn_rnn(*args),
    "mkldnn_rnn_layer": _mkldnn_rnn,
    "mkldnn_rnn_layer_backward": lambda *args, **_: 2 * _mkldnn_rnn(*args),
    "_fft_c2c": lambda signal, dim, *_, **__: _fourier(signal, dim, 5.0),
    "_fft_r2c": lambda signal, dim, *_, **__: _fourier(signal, dim, 2.5),
    "_fft_c2r": lambda _signal, dim, *_, out_val, **__: _fourier(out_val, dim, 2.5),
}

_FLASH: Final = "_scaled_dot_product_flash_attention"
_LIKE: Final = {
    f"{_FLASH}_for_cpu": _FLASH,
    f"{_FLASH}_for_cpu_backward": f"{_FLASH}_backward",
    "_scaled_dot_product_fused_attention_overrideable": _FLASH,
    "_scaled_dot_product_fused_attention_overrideable_backward": f"{_FLASH}_backward",
}
"""Operators without a formula in torch, with one that takes the same tensors first and has the same FLOPs."""
