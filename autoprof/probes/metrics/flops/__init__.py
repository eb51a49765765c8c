"""FLOPs of a model's step by module and phase, counted on fake tensors without running the model."""

from .call_inputs import ModelCall, Opaque, TensorSpec, describe, trained_parameters
from .count import count_call
from .flop_count import TOO_LONG, FlopCount, FlopKey, Kind, weighted_sum

__all__ = [
    "TOO_LONG", "FlopCount", "FlopKey", "Kind", "ModelCall", "Opaque", "TensorSpec", "count_call",
    "describe", "trained_parameters", "weighted_sum",
]  # fmt: skip
