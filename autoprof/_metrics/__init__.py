"""What a run comes to beside its times: samples per second, counted work, readings of the device and the host."""

from .calls import RootProbe
from .flop_meter import FlopMeter, peak_of
from .metrics import Metrics
from .telemetry import Telemetry, open_telemetry

__all__ = [
    "FlopMeter",
    "Metrics",
    "RootProbe",
    "StepCalls",
    "Telemetry",
    "ThroughputMeter",
    "open_telemetry",
    "peak_of",
]
