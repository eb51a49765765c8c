"""Probes that watch a step outside the model's modules: one module a probe.

A module without leading underscore holds a ``ProbeFactory`` as ``PROBE``. Another package adds its own through an
entry point of the group ``autoprof.probes``.
"""

from .._capture.handle import Probe
from .._process.replace import Attribute, CallProbe, Listener, Replacement
from ._base import PROBES, ProbeContext, ProbeFactory, StepEvents, StepProbes
from ._batches import Fetched, FetchedBatches
from ._given_optimizers import optimizers_in, unwrap_optimizer
from ._prefetch import Prefetch
from ._spans import SpanListener

__all__ = [
    "PROBES",
    "Attribute",
    "CallProbe",
    "Fetched",
    "FetchedBatches",
    "Listener",
    "Prefetch",
    "Probe",
    "ProbeContext",
    "ProbeFactory",
    "Replacement",
    "SpanListener",
    "StepEvents",
    "StepProbes",
    "optimizers_in",
    "unwrap_optimizer",
]
