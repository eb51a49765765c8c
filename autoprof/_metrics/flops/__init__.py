"""Counted work: how many floating-point operations a model's step asks for, by module and phase, without running it."""

from .counter import COUNTS, Counter
from .run import ModuleCall, count_call
from .specs import Ambient, Inputs, Opaque, TensorSpec, ambient, describe
from .work import Kind, WorkCount, WorkKey, add_up

__all__ = [
    "COUNTS", "Ambient", "Counter", "Inputs", "Kind", "ModuleCall", "Opaque", "TensorSpec", "WorkCount", "WorkKey",
    "add_up", "ambient", "count_call", "describe",
]  # fmt: skip
