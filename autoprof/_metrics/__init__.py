"""What a run comes to beside its times: samples per second, counted work, readings of the device and the host."""

from .calls import RootProbe, StepCalls
from .flop_meter import WorkMeter, peak_of
from .metrics import Gauges
from .telemetry import Readings, open_readings
from .throughput import Paces

__all__ = ["Gauges", "Paces", "Readings", "RootProbe", "StepCalls", "WorkMeter", "open_readings", "peak_of"]
