"""Spans of the optimizer's calls other than ``step``: clipping, ``zero_grad``, gradient scaler, scheduler.

``from torch.nn.utils import clip_grad_norm_`` binds the function for good. Its decorator holds the original in a
closure cell, which is where the replacement goes, so such a name is timed as well. A method of another package that
clips by its own means (``model.clip_grad_norm_`` of FSDP1) is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils import clip_grad
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from ..base.frame import Phase
from ..base.process.replace import Attribute, CallProbe, InCompiler, Replacement, place_of
from ._base import ProbeContext, ProbeFactory
from ._spans import SpanListener

REPLACEMENTS = {
    "clip_grad_norm_": (Replacement(place_of(clip_grad, "clip_grad_norm_"), in_compiler=InCompiler.RETIRED),),
    "clip_grad_value_": (Replacement(place_of(clip_grad, "clip_grad_value_"), in_compiler=InCompiler.RETIRED),),
    "zero_grad": (
        Replacement(Attribute(Optimizer, "zero_grad")),
        Replacement(Attribute(torch.nn.Module, "zero_grad")),
    ),
    "unscale_": (Replacement(Attribute(torch.amp.GradScaler, "unscale_")),),
    "scaler.step": (Replacement(Attribute(torch.amp.GradScaler, "step")),),
    "scheduler.step": (Replacement(Attribute(LRScheduler, "step")),),
}
"""The functions that are timed, by the last part of the span's name."""


def _make(context: ProbeContext) -> CallProbe:
    """Time these calls as ``Optimizer/…``; ``zero_grad`` only of the session's optimizers, if it was given any."""
    optimizers = context.optimizers
    codes = {name: context.recorder.label(f"Optimizer/{name}", None, Phase.OPTIMIZER) for name in REPLACEMENTS}

    def of_zero_grad(_function: Callable[..., Any], args: tuple[Any, ...]) -> int:
        owner = args[0] if args else None
        is_others = isinstance(owner, Optimizer) and not optimizers.trains(owner)
        return -1 if is_others else codes["zero_grad"]

    pairs = []
    for name, replacements in REPLACEMENTS.items():
        listener = SpanListener(
            context.recorder, codes[name], of_zero_grad if name == "zero_grad" and optimizers.given else None
        )
        pairs += [(replacement, listener) for replacement in replacements]
    return CallProbe(pairs)


PROBE = ProbeFactory(_make)
