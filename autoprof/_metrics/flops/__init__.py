"""FLOPs of a model's step by module and phase, counted on fake tensors without running the model."""

from .call_inputs import Ambient, Inputs, Opaque, TensorSpec, ambient, describe
from .count import ModelCall, count_call
from .flop_count import FlopCount, FlopKey, Kind, add_up

__all__ = [
    "Ambient", "FlopCount", "FlopKey", "Inputs", "Kind", "ModelCall", "Opaque", "TensorSpec", "add_up", "ambient",
    "count_call", "describe",
]  # fmt: skip
