"""``Summary``: a run as a whole, to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, Final

from ..frame import Phase
from .parts import (
    Apart,
    Clock,
    Finding,
    Gauge,
    MemoryRow,
    Pace,
    PairedCost,
    Row,
    Shapes,
    WhatIf,
    Work,
    WorkKind,
    WorkRow,
    WrittenOut,
)

ALIKE: Final = 0.1
"""How far the mean of recorded steps may lie from that of the steps left alone before it is said."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's statistics over its recorded steps, warm-up apart.

    ``phases`` holds nanoseconds over all recorded steps and sums to ``total_step_ns`` exactly. ``throughput`` is
    ``throughput_unit`` per second, logged or recognised (``pace`` says which). ``overhead`` is autoprof's own time, by
    its own clock, as a fraction of the time of all steps, recorded or not; ``paired`` is the same question asked
    otherwise (None while there are too few pairs). ``dropped`` and ``skipped`` map a reason to a count. A span shorter
    than ``clock_limit_ns`` is perhaps none: reports show it, and ``calls`` times as much for a row, as less than that.
    ``memory_table`` has the whole run first, then the names; ``unmeasured`` says why columns of it are empty.
    ``memory`` has the last reading of each kind. ``micro_steps`` is what most steps had: rounds of forward and backward
    before one optimizer step; None where no backward pass was seen. ``apart`` is what was charged to no step, by the
    host's clock. ``loader`` has ``workers``, ``fetches`` and ``unready``, how many fetches found no batch ready; empty
    where nobody can know. ``unsampled_ns`` is what the steps that were left alone took together, by the host's clock.
    """

    clock: Clock
    steps: int
    warmup_steps: int
    unsampled_steps: int
    total_step_ns: int
    step_mean_ns: int
    step_min_ns: int
    step_max_ns: int
    step_p50_ns: int
    step_p95_ns: int
    step_last_ns: int
    phases: Mapping[Phase, int]
    rows: tuple[Row, ...]
    overhead: float
    overhead_ns: int
    throughput: float | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    clock_limit_ns: int = 0
    what_if: tuple[WhatIf, ...] = ()
    paired: PairedCost | None = None
    memory_table: tuple[MemoryRow, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    shapes: tuple[Shapes, ...] = ()
    micro_steps: int | None = None
    apart: tuple[Apart, ...] = ()
    loader: Mapping[str, int] = field(default_factory=dict)
    throughput_unit: str = "samples"
    pace: Pace | None = None
    gauges: Mapping[str, Gauge] = field(default_factory=dict)
    work: Work | None = None
    unsampled_ns: int = 0

    @property
    def untypical(self) -> float | None:
        """How much longer recorded steps were than those left alone, beyond what recording them costs, as a fraction.

        None where they may be alike within ``ALIKE``, or where that is not known. A budget is time: where steps are
        long for a while and short for a while, more of the long ones are recorded.
        """
        if self.paired is None or not self.steps or not self.unsampled_steps or not self.unsampled_ns:
            return None
        times = self.step_mean_ns * self.unsampled_steps / self.unsampled_ns
        if_cheap, likely, if_dear = (times / (1.0 + max(share, -0.9)) - 1.0 for share in self.paired.interval)
        return None if if_dear <= ALIKE and if_cheap >= -ALIKE else likely

    @classmethod
    def empty(cls, notes: tuple[str, ...] = ()) -> Summary:
        """Return the summary of a run of which nothing is known."""
        return cls(
            clock="host",
            steps=0,
            warmup_steps=0,
            unsampled_steps=0,
            total_step_ns=0,
            step_mean_ns=0,
            step_min_ns=0,
            step_max_ns=0,
            step_p50_ns=0,
            step_p95_ns=0,
            step_last_ns=0,
            phases={Phase.OTHER: 0},
            rows=(),
            overhead=0.0,
            overhead_ns=0,
            notes=notes,
        )

    def with_note(self, note: str) -> Summary:
        """Return the summary with one more note."""
        return replace(self, notes=(*self.notes, note))

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain JSON types.

        JSON knows neither NaN nor infinity: such a scalar is null, and ``not_finite`` says what it was.
        """
        data = asdict(self)
        odd = {name: repr(float(value)) for name, value in self.scalars.items() if not isfinite(value)}
        data["scalars"] = {**self.scalars, **dict.fromkeys(odd)}
        if odd:
            data["not_finite"] = odd
        data["phases"] = {str(phase): ns for phase, ns in self.phases.items()}
        for row, source in zip(data["rows"], self.rows, strict=True):
            row["phase"] = str(source.phase)
        for finding, found in zip(data["findings"], self.findings, strict=True):
            finding["phase"] = None if found.phase is None else str(found.phase)
        data["shapes"] = [one.to_dict() for one in self.shapes]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """Read back what ``to_dict`` wrote; what a later version says beside it is left out."""
        values = {name: value for name, value in data.items() if name in cls.__dataclass_fields__}
        odd = data.get("not_finite", {})
        values["scalars"] = {**data["scalars"], **{name: float(text) for name, text in odd.items()}}
        values["phases"] = {Phase(phase): ns for phase, ns in data["phases"].items()}
        values["rows"] = tuple(Row(**{**row, "phase": Phase(row["phase"])}) for row in data["rows"])
        values["findings"] = tuple(
            Finding(**{**found, "phase": None if found["phase"] is None else Phase(found["phase"])})
            for found in data["findings"]
        )
        values["what_if"] = tuple(WhatIf(**one) for one in data.get("what_if", ()))
        values["pace"] = Pace(**data["pace"]) if data.get("pace") else None
        values["memory_table"] = tuple(MemoryRow(**row) for row in data.get("memory_table", ()))
        values["shapes"] = tuple(map(Shapes.from_dict, data.get("shapes", ())))
        values["apart"] = tuple(Apart(**one) for one in data.get("apart", ()))
        values["notes"] = tuple(data["notes"])
        values["paired"] = PairedCost(**data["paired"]) if data.get("paired") is not None else None
        values["gauges"] = {name: Gauge(**gauge) for name, gauge in data.get("gauges", {}).items()}
        values["work"] = _work(data["work"]) if data.get("work") else None
        return cls(**values)


def _work(data: Mapping[str, Any]) -> Work:
    rows = tuple(WorkRow(**row) for row in data["rows"])
    kinds = tuple(WorkKind(**one) for one in data.get("kinds", ()))
    attention = tuple(WrittenOut(**one) for one in data.get("attention", ()))
    return Work(**{**data, "notes": tuple(data["notes"]), "rows": rows, "kinds": kinds, "attention": attention})
