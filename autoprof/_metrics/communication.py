"""``CommMeter``: the observer that joins each communication to the waits of its step.

On the host the interval of a communication is known, from its begin to its end. On a device only the waits are: the
stream that computes waits between two events, and no event is recorded on a communication stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple

from .._core.failures import contain, describe
from .._core.notes import Notes
from .._resolve import RawStep
from .._resolve.observer import Observer
from ..frame import FrameRun, Layout, Phase, StepFrame
from ..probes._communication import CommCall, CommRecord
from ..summary import CommRow, Communication, Summary
from .time_sets import Interval, StepParts, covered_ns, split_step

MAX_ROWS: Final = 256
"""Rows kept; the communications of further ones are counted."""

BUS_FACTORS: Final[Mapping[str, Callable[[int], float]]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), lambda n: (n - 1) / n),
    **dict.fromkeys(("broadcast", "reduce", "send", "recv"), lambda _: 1.0),
}
"""The factor from bytes over time to bus bandwidth, by kind, for a number of ranks.

Source: nccl-tests, doc/PERFORMANCE.md and, for gather, src/gather.cu (https://github.com/NVIDIA/nccl-tests); scatter is
the reverse of gather.
"""


class CommKey(NamedTuple):
    """The properties that the communications of a row share; sizes within a factor of 16 are one class."""

    kind: str
    caller: str
    group: str
    ranks: int
    phase: str
    size: int


@dataclass(slots=True)
class _Totals:
    calls: int = 0
    bytes: int = 0
    timed: int = 0
    timed_bytes: int = 0
    ns: int = 0
    exposed_ns: int = 0
    busy_ns: int = 0
    """The time of the timed calls together, beyond the ends of their steps too."""


@dataclass(slots=True)
class _StepTotals:
    steps: int = 0
    step_ns: int = 0
    compute_ns: int = 0
    exposed_ns: int = 0
    idle_ns: int = 0
    overlapped_ns: int = 0
    unassigned_ns: int = 0
    on_device: bool = False


class _WaitColumns(NamedTuple):
    layout: Layout
    waits: list[int]
    idle: list[int]


@dataclass(slots=True)
class _CommStep:
    number: int
    begun_ns: int
    calls: list[CommCall] = field(default_factory=list)


class CommMeter(Observer):
    """Follow the communication of a run; free of cost where one process trains alone."""

    provides = "table of communication"

    def __init__(self, record: CommRecord, notes: Notes) -> None:
        self._record = record
        self._notes = notes
        self._steps: deque[_CommStep] = deque()
        self._rows: dict[CommKey, _Totals] = {}
        self._totals = _StepTotals()
        self._columns: dict[int, _WaitColumns] = {}
        self._beyond = 0
        self._on = False
        self._failed = False

    def step(self, raw: RawStep) -> RawStep:
        """Take the communications of a step that has just ended."""
        if (self._on or self._record.calls) and not self._failed:
            self._on = True
            self._steps.append(_CommStep(raw.step, raw.begun_ns, self._record.take()))
        return raw

    def frames(self, run: FrameRun) -> None:
        """Add the communications of these steps; never raises."""
        if self._on and not self._failed:
            with contain(self._switch_off):
                for frame in run.frames:
                    self._add(frame)

    def _switch_off(self, error: Exception) -> None:
        self._failed = True
        self._steps.clear()
        self._notes.warn_once(f"the {self.provides} is off after {describe(error)}")

    def _add(self, frame: StepFrame) -> None:
        while self._steps and self._steps[0].number < frame.step:
            self._steps.popleft()
        found = bool(self._steps) and self._steps[0].number == frame.step
        step = self._steps.popleft() if found else _CommStep(frame.step, 0)
        if frame.warmup:
            return
        columns = self._columns_of(frame.layout)
        by_key: dict[CommKey, list[CommCall]] = {}
        for call in step.calls:
            by_key.setdefault(_key(call), []).append(call)
        unknown = [key for key in by_key if key not in self._rows]
        for key in unknown[max(MAX_ROWS - len(self._rows), 0) :]:
            self._beyond += len(by_key.pop(key))
        if frame.device_duration_ns is None:
            self._add_on_host(frame, step, columns, by_key)
        else:
            self._add_on_device(frame, step, columns, by_key)

    def _add_on_host(
        self, frame: StepFrame, step: _CommStep, columns: _WaitColumns, by_key: Mapping[CommKey, list[CommCall]]
    ) -> None:
        waits, idle = _host_spans(frame, columns.waits), _host_spans(frame, columns.idle)
        timed = [call for calls in by_key.values() for call in calls if call.ended_ns]
        intervals = [(call.begun_ns - step.begun_ns, call.ended_ns - step.begun_ns) for call in timed]
        parts = split_step(frame.step_ns, waits, idle, intervals)
        exposed: dict[CommKey, int] = {}
        for call, share in zip(timed, parts.shares, strict=True):
            exposed[_key(call)] = exposed.get(_key(call), 0) + share
        for key, calls in by_key.items():
            row = self._count(key, calls)
            ended = [call for call in calls if call.ended_ns]
            row.timed += len(ended)
            row.timed_bytes += sum(call.bytes for call in ended)
            until_ns = step.begun_ns + frame.step_ns
            row.ns += covered_ns((max(call.begun_ns, step.begun_ns), min(call.ended_ns, until_ns)) for call in ended)
            row.busy_ns += covered_ns((call.begun_ns, call.ended_ns) for call in ended)
            row.exposed_ns += exposed.get(key, 0)
        self._count_step(frame, parts, sum(parts.shares))

    def _add_on_device(
        self, frame: StepFrame, step: _CommStep, columns: _WaitColumns, by_key: Mapping[CommKey, list[CommCall]]
    ) -> None:
        waits, idle = _device_spans(frame, columns.waits), _device_spans(frame, columns.idle)
        parts = split_step(frame.step_ns, waits, idle, ())
        assigned = 0
        calls = sorted((call for calls in by_key.values() for call in calls), key=lambda call: call.begun_ns)
        exposed: dict[CommKey, int] = {}
        for (begin, end), host in zip(waits, _host_spans(frame, columns.waits), strict=True):
            inside = [call for call in calls if host[0] <= call.begun_ns - step.begun_ns < host[1]]
            if inside:
                exposed[_key(inside[0])] = exposed.get(_key(inside[0]), 0) + end - begin
                assigned += end - begin
        for key, of_key in by_key.items():
            self._count(key, of_key).exposed_ns += exposed.get(key, 0)
        self._totals.on_device = True
        self._count_step(frame, parts, assigned)

    def _count_step(self, frame: StepFrame, parts: StepParts, assigned_ns: int) -> None:
        totals = self._totals
        totals.steps += 1
        totals.step_ns += frame.step_ns
        totals.compute_ns += parts.compute_ns
        totals.exposed_ns += parts.exposed_ns
        totals.idle_ns += parts.idle_ns
        totals.overlapped_ns += parts.overlapped_ns
        totals.unassigned_ns += max(parts.exposed_ns - assigned_ns, 0)

    def _count(self, key: CommKey, calls: list[CommCall]) -> _Totals:
        row = self._rows.setdefault(key, _Totals())
        row.calls += len(calls)
        row.bytes += sum(call.bytes for call in calls)
        return row

    def _columns_of(self, layout: Layout) -> _WaitColumns:
        known = self._columns.get(id(layout))
        if known is None or known.layout is not layout:
            if len(self._columns) >= 64:
                self._columns.clear()
            by_phase = {phase: indices.tolist() for phase, indices in layout.phase_groups}
            known = _WaitColumns(layout, by_phase.get(Phase.COMM, []), by_phase.get(Phase.DATA, []))
            self._columns[id(layout)] = known
        return known

    def table(self) -> Communication | None:
        """Return the communication so far; None where there was none."""
        totals = self._totals
        if not totals.steps:
            return None
        rows = [_row(key, row) for key, row in self._rows.items()]
        rows.sort(key=lambda row: (-row.exposed_ns, -row.ns, -row.bytes, row.kind))
        return Communication(
            totals.steps,
            totals.step_ns,
            totals.compute_ns,
            totals.exposed_ns,
            totals.idle_ns,
            None if totals.on_device else totals.overlapped_ns,
            totals.unassigned_ns,
            tuple(rows),
            self._beyond + self._record.beyond,
        )

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with its communication."""
        return replace(summary, communication=self.table()) if self._on else summary

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Return the communication for ``run.json``."""
        table = self.table()
        return {} if table is None else {"communication": asdict(table)}


def _key(call: CommCall) -> CommKey:
    size = call.bytes.bit_length() // 4
    return CommKey(call.kind, call.caller, call.group, call.ranks, str(call.phase), size)


def _host_spans(frame: StepFrame, columns: list[int]) -> list[Interval]:
    starts, lengths = frame.start_ns, frame.host_ns
    return [(begin := int(starts[at]), begin + int(lengths[at])) for at in columns]


def _device_spans(frame: StepFrame, columns: list[int]) -> list[Interval]:
    starts, lengths = frame.device_start_ns, frame.device_ns
    if starts is None or lengths is None:
        return [(0, 0)] * len(columns)
    return [(begin := int(starts[at]), begin + max(int(lengths[at]), 0)) for at in columns]


def bus_bandwidth(kind: str, ranks: int, count: int, ns: int) -> float | None:
    """Return the bus bandwidth in bytes per second; None for a kind without bytes, or without a time."""
    factor = BUS_FACTORS.get(kind)
    return None if factor is None or ns <= 0 or not count else factor(ranks) * count * 1e9 / ns


def _row(key: CommKey, row: _Totals) -> CommRow:
    return CommRow(
        key.kind,
        key.caller,
        key.group,
        key.ranks,
        key.phase,
        row.calls,
        row.bytes,
        row.timed,
        row.ns,
        row.exposed_ns,
        bus_bandwidth(key.kind, key.ranks, row.timed_bytes, row.busy_ns),
    )
