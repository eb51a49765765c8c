"""The configuration: YAML text → ``Settings``. The sections of the sinks are added by ``autoprof.sinks.Config``."""

from .rules import FunctionRule, TargetRule
from .schema import Deep, FlightOptions, MemorySnapshot, Sample, Settings

__all__ = ["Deep", "FlightOptions", "FunctionRule", "MemorySnapshot", "Sample", "Settings", "TargetRule"]
