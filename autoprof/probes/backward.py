"""Mark where ``torch.autograd.backward`` begins and returns: the nodes of a loss outside the model have no hooks."""

from __future__ import annotations

from .._capture.hooks.backward import BackwardProbe
from ._base import ProbeContext, ProbeFactory


def _make(context: ProbeContext) -> BackwardProbe | None:
    return BackwardProbe(context.module_hooks.passes) if context.follows_backward else None


PROBE = ProbeFactory(_make)
