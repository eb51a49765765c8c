"""Probes that watch a step outside the model's modules: one module a probe.

A module without leading underscore holds a ``ProbeFactory`` as ``PROBE``. Another package adds its own through an
entry point of the group ``autoprof.probes``.
"""

from ._base import PROBES, ProbeContext, ProbeFactory, StepEvents, StepProbes

__all__ = ["PROBES", "ProbeContext", "ProbeFactory", "StepEvents", "StepProbes"]
