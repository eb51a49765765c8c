"""Mark where ``torch.autograd.backward`` begins and returns: the nodes of a loss outside the model have no hooks."""

from __future__ import annotations

from ..capture.hooks.backward import BackwardProbe
from ._base import ProbeFactory

PROBE = ProbeFactory(lambda context: BackwardProbe(context.module_hooks.passes) if context.follows_backward else None)
