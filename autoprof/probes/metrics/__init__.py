"""Metrics of a run other than its times: throughput, telemetry, FLOPs and MFU."""

from .flop_meter import FlopMeter
from .metrics import Metrics, StepInputs
from .model_calls import RootProbe
from .telemetry import Telemetry, open_telemetry

__all__ = ["FlopMeter", "Metrics", "RootProbe", "StepInputs", "Telemetry", "open_telemetry"]
