"""What a run comes to: ``Summary``, its ``Row`` and ``Finding``, as frozen data that goes to and from JSON."""

from .parts import (
    Apart,
    Clock,
    Finding,
    Gauge,
    MemoryRow,
    Pace,
    PairedCost,
    Row,
    Severity,
    Shapes,
    WhatIf,
    Work,
    WorkKind,
    WorkRow,
    WrittenOut,
    counts,
    named,
)
from .summary import Summary

__all__ = [
    "Apart",
    "Clock",
    "Finding",
    "Gauge",
    "MemoryRow",
    "Pace",
    "PairedCost",
    "Row",
    "Severity",
    "Shapes",
    "Summary",
    "WhatIf",
    "Work",
    "WorkKind",
    "WorkRow",
    "WrittenOut",
    "counts",
    "named",
]
