"""Spans around what belongs to an optimizer's step beside the update itself: clipping, ``zero_grad``, AMP, schedule.

``from torch.nn.utils import clip_grad_norm_`` binds the function for good. Its decorator holds the real one in a cell,
which is where autoprof puts its wrapper, so such a name is timed as well; one that does the same by its own means
(``model.clip_grad_norm_`` of FSDP1) is not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import clip_grad
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from ...frame import Phase
from ..recorder import Recorder
from .handle import Handle
from .patch import Attribute, Patch, PatchProbe, SpanListener, holder_of

CLIP_NORM = Patch(holder_of(clip_grad, "clip_grad_norm_"), inlined=True)
CLIP_VALUE = Patch(holder_of(clip_grad, "clip_grad_value_"), inlined=True)
ZERO_GRAD = Patch(Attribute(Optimizer, "zero_grad"))
MODULE_ZERO_GRAD = Patch(Attribute(torch.nn.Module, "zero_grad"))
UNSCALE = Patch(Attribute(torch.amp.GradScaler, "unscale_"))
SCALER_STEP = Patch(Attribute(torch.amp.GradScaler, "step"))
SCHEDULE = Patch(Attribute(LRScheduler, "step"))

NAMES = {
    "clip_grad_norm_": (CLIP_NORM,),
    "clip_grad_value_": (CLIP_VALUE,),
    "zero_grad": (ZERO_GRAD, MODULE_ZERO_GRAD),
    "unscale_": (UNSCALE,),
    "scaler.step": (SCALER_STEP,),
    "scheduler.step": (SCHEDULE,),
}
"""The last part of a span's name, and whose calls it times."""


def probe_update(recorder: Recorder, optimizers: tuple[Any, ...], handle: Handle) -> PatchProbe:
    """Time these calls as ``Optimizer/…``; ``zero_grad`` only of these optimizers, or of all when none are given."""

    def wanted(args: tuple[Any, ...]) -> bool:
        given = args[0] if args else None
        return not optimizers or not isinstance(given, Optimizer) or any(given is one for one in optimizers)

    pairs = []
    for name, patches in NAMES.items():
        code = recorder.label(f"Optimizer/{name}", None, Phase.OPTIMIZER)
        listener = SpanListener(recorder, code, wanted if name == "zero_grad" else None)
        pairs += [(patch, listener) for patch in patches]
    return PatchProbe(pairs, handle)
