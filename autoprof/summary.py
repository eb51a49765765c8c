"""What a run comes to: ``Summary``, its ``Row`` and ``Finding``, as frozen data that goes to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, Literal

from .span import Phase

Clock = Literal["host", "device"]
Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class Row:
    """Statistics of one name in one phase. ``mean_ns`` to ``p95_ns`` are per recorded step in which the row occurred.

    ``total_ns`` counts nested spans of the same row once; ``self_ns`` is what no child span covers. ``share`` is
    ``total_ns`` over the time of all recorded steps, so that rows nested in one another overlap but a row and its
    siblings never exceed their parent. Quantiles are within 1 % (logarithmic bins). ``host_bound`` is the share of
    device time that was as long as the host took, the device's queue being empty; None without a device.
    """

    name: str
    fqn: str | None
    phase: Phase
    calls: int
    steps: int
    total_ns: int
    self_ns: int
    host_total_ns: int
    mean_ns: int
    min_ns: int
    max_ns: int
    p50_ns: int
    p95_ns: int
    last_ns: int
    share: float
    parent: str | None = None
    lane: int = 0
    memory_growth_bytes: int | None = None
    memory_peak_bytes: int | None = None
    host_bound: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's verdict, or its abstention (severity ``info``, the missing signal in ``evidence``)."""

    rule: str
    severity: Severity
    why: str
    next: str
    name: str | None = None
    phase: Phase | None = None
    rank: int | None = None
    gain_ns: int | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a run would come to with one thing changed; None where this run has no input for it.

    ``assumed`` says what the arithmetic takes for granted, and where it goes beyond what was measured.
    """

    change: str
    step_ns: int
    throughput: float | None
    memory_bytes: int | None
    memory_change_bytes: int | None
    assumed: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's statistics over its recorded steps, warm-up apart.

    ``phases`` holds nanoseconds over all recorded steps and sums to ``total_step_ns`` exactly. ``throughput`` is
    samples per second, when the run logged ``samples``. ``overhead`` is autoprof's own time as a fraction of step
    time. ``dropped`` and ``skipped`` map a reason to a count. A span shorter than ``clock_limit_ns`` is perhaps none:
    reports show it, and ``calls`` times as much for a row, as less than that.
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
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """Read back what ``to_dict`` wrote."""
        values = dict(data)
        odd = values.pop("not_finite", {})
        values["scalars"] = {**data["scalars"], **{name: float(text) for name, text in odd.items()}}
        values["phases"] = {Phase(phase): ns for phase, ns in data["phases"].items()}
        values["rows"] = tuple(Row(**{**row, "phase": Phase(row["phase"])}) for row in data["rows"])
        values["findings"] = tuple(
            Finding(**{**found, "phase": None if found["phase"] is None else Phase(found["phase"])})
            for found in data["findings"]
        )
        values["what_if"] = tuple(WhatIf(**one) for one in data.get("what_if", ()))
        values["notes"] = tuple(data["notes"])
        return cls(**values)


def counts(reasons: Mapping[str, int]) -> str:
    """Phrase a map of reasons to counts for people: ``3 marks, 1 failures in module hooks``."""
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())
