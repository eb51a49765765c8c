"""FLOPs of a model's step by module and phase, counted on fake tensors without running the model."""

from .call_inputs import Ambient, Inputs, Opaque, TensorSpec, ambient, describe, trained_parameters
from .count import ModelCall, count_call
from .flop_count import FlopCount, FlopKey, Kind, weighted_sum

__all__ = [
    "Ambient", "FlopCount", "FlopKey", "Inputs", "Kind", "ModelCall", "Opaque", "TensorSpec", "ambient",
    "count_call", "describe", "trained_parameters", "weighted_sum",
]  # fmt: skip
