"""What a run comes to beside its times: samples per second, counted work, readings of the device and the host."""

from .calls import RootProbe, StepCalls
from .gauges import Gauges
from .pace import Paces
from .readings import Readings, open_readings
from .work import WorkMeter, peak_of

__all__ = ["Gauges", "Paces", "Readings", "RootProbe", "StepCalls", "WorkMeter", "open_readings", "peak_of"]
