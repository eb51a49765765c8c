"""Metrics of a run other than its times: throughput, telemetry, FLOPs and MFU."""

from .flop_meter import FlopMeter
from .metrics import InputSizes, Metrics
from .model_calls import RootProbe
from .telemetry import Telemetry, open_telemetry

__all__ = ["FlopMeter", "InputSizes", "Metrics", "RootProbe", "Telemetry", "open_telemetry"]
