"""Mark activation checkpointing: the recomputations of ``torch.utils.checkpoint`` become spans."""

from __future__ import annotations

from ..capture.hooks.checkpointing import CheckpointMarks, CheckpointProbe
from ._base import ProbeContext, ProbeFactory


def _make(context: ProbeContext) -> CheckpointProbe:
    passes = context.module_hooks.passes
    return CheckpointProbe(CheckpointMarks(context.recorder, passes, follows_backward=context.follows_backward))


PROBE = ProbeFactory(_make)
