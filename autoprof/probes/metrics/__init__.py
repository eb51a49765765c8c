"""Metrics of a run other than its times: throughput, telemetry, FLOPs and MFU."""

from .flop_meter import FlopMeter
from .metrics import Metrics, StepInputs
from .model_calls import RootProbe, callable_parts
from .telemetry import Telemetry, open_telemetry

__all__ = ["FlopMeter", "Metrics", "RootProbe", "StepInputs", "Telemetry", "callable_parts", "open_telemetry"]
