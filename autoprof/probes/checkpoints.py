"""Mark activation checkpointing: the recomputations of ``torch.utils.checkpoint`` become spans."""

from __future__ import annotations

from .._capture.hooks.checkpointing import CheckpointListener, CheckpointMarks, CheckpointProbe
from .._capture.hooks.ranges import CheckpointRanges, RangingRecorder
from ._base import ProbeContext, ProbeFactory


def _make(context: ProbeContext) -> CheckpointProbe:
    recorder, passes = context.recorder, context.module_hooks.passes
    listeners: list[CheckpointListener] = [CheckpointMarks(recorder, passes, follows_backward=context.follows_backward)]
    if isinstance(recorder, RangingRecorder):
        listeners.append(CheckpointRanges(recorder))
    return CheckpointProbe(listeners)


PROBE = ProbeFactory(_make)
