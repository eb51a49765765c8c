"""Probes that watch a step outside the model's modules: one module a probe.

A module without leading underscore holds a ``ProbeFactory`` as ``PROBE``. Another package adds its own through an
entry point of the group ``autoprof.probes``.
"""

from ..base.process.replace import Attribute, CallProbe, Listener, Replacement
from ..capture.handle import Probe
from ._base import PROBES, ProbeContext, ProbeFactory, StepEvents, StepProbes
from ._batches import Fetched, FetchedBatches
from ._call_table import CallTable, Site, TimedCall, file_owner
from ._communication import Traffic
from ._given_optimizers import optimizers_in, unwrap_optimizer
from ._kept_tensors import KeptTensors, KeptTensorsProbe
from ._prefetch import Prefetch
from ._spans import SpanListener

__all__ = [
    "PROBES",
    "Attribute",
    "CallProbe",
    "CallTable",
    "Fetched",
    "FetchedBatches",
    "KeptTensors",
    "KeptTensorsProbe",
    "Listener",
    "Prefetch",
    "Probe",
    "ProbeContext",
    "ProbeFactory",
    "Replacement",
    "Site",
    "SpanListener",
    "StepEvents",
    "StepProbes",
    "TimedCall",
    "Traffic",
    "file_owner",
    "optimizers_in",
    "unwrap_optimizer",
]
