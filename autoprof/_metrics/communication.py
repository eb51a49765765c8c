"""``CommMeter``: the observer that joins each communication to the waits of its step.

On the host the interval of a communication is known, from its begin to its end. On a device only the waits are: the
stream that computes waits between two events, and no event is recorded on a communication stream.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from .._resolve import RawStep
from .._resolve.observer import Observer
from ..frame import FrameRun, Nanoseconds, Phase, StepFrame
from ..probes._communication import CommCall, CommRecord
from ..summary import CommRow, Communication, Summary
from .time_sets import Interval, covered_ns, split_step

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


class _CommStep(NamedTuple):
    number: int
    begun_ns: int
    calls: list[CommCall]


class CommMeter(Observer):
    """Follow the communication of a run; free of cost where one process trains alone."""

    provides = "table of communication"

    def __init__(self, record: CommRecord) -> None:
        self._record = record
        self._steps: deque[_CommStep] = deque()
        self._rows: dict[CommKey, Counter[str]] = {}
        self._totals: Counter[str] = Counter()
        self._beyond = 0
        self._on = self._on_device = False

    def step(self, raw: RawStep) -> RawStep:
        """Take the communications of a step that has just ended."""
        if self._on or self._record.calls:
            self._on = True
            self._steps.append(_CommStep(raw.step, raw.begun_ns, self._record.take()))
        return raw

    def frames(self, run: FrameRun) -> None:
        """Add the communications of these steps."""
        if self._on:
            for frame in run.frames:
                self._add(frame)

    def _add(self, frame: StepFrame) -> None:
        while self._steps and self._steps[0].number < frame.step:
            self._steps.popleft()
        found = bool(self._steps) and self._steps[0].number == frame.step
        step = self._steps.popleft() if found else _CommStep(frame.step, 0, [])
        if frame.warmup:
            return
        by_key: dict[CommKey, list[CommCall]] = defaultdict(list)
        for call in step.calls:
            by_key[_key(call)].append(call)
        for key in [key for key in by_key if key not in self._rows][max(MAX_ROWS - len(self._rows), 0) :]:
            self._beyond += len(by_key.pop(key))
        exposed = self._split(frame, step.begun_ns, [call for calls in by_key.values() for call in calls])
        for key, calls in by_key.items():
            ended = [call for call in calls if call.ended_ns]
            until_ns = step.begun_ns + frame.step_ns
            inside = ((max(call.begun_ns, step.begun_ns), min(call.ended_ns, until_ns)) for call in ended)
            self._rows.setdefault(key, Counter()).update(
                calls=len(calls),
                bytes=sum(call.bytes for call in calls),
                timed=len(ended),
                timed_bytes=sum(call.bytes for call in ended),
                ns=covered_ns(inside),
                busy_ns=covered_ns((call.begun_ns, call.ended_ns) for call in ended),  # also beyond the step's end
                exposed_ns=exposed[key],
            )

    def _split(self, frame: StepFrame, begun_ns: int, calls: list[CommCall]) -> Counter[CommKey]:
        """Split a step into compute, exposed and idle time; return the exposed time of each row.

        A wait on a device belongs to the first call that began while the host made that wait.
        """
        spans = dict(frame.layout.phase_groups)
        comm, data = spans.get(Phase.COMM, ()), spans.get(Phase.DATA, ())
        waits, idle = (_intervals(frame.start_ns, frame.host_ns, one) for one in (comm, data))
        timed = [call for call in calls if call.ended_ns]
        ran = [(call.begun_ns - begun_ns, call.ended_ns - begun_ns) for call in timed]
        if frame.device_duration_ns is not None and frame.device_start_ns is not None and frame.device_ns is not None:
            self._on_device = True
            calls.sort(key=lambda call: call.begun_ns)
            inside = [
                next((call for call in calls if begin <= call.begun_ns - begun_ns < end), None) for begin, end in waits
            ]
            waits, idle = (_intervals(frame.device_start_ns, frame.device_ns, one) for one in (comm, data))
            timed = [call for call in inside if call is not None]
            ran = [wait for wait, call in zip(waits, inside, strict=True) if call is not None]
        parts = split_step(frame.step_ns, waits, idle, ran)
        exposed: Counter[CommKey] = Counter()
        for call, share in zip(timed, parts.shares, strict=True):
            exposed[_key(call)] += share
        self._totals.update(
            steps=1,
            step_ns=frame.step_ns,
            compute_ns=parts.compute_ns,
            exposed_ns=parts.exposed_ns,
            idle_ns=parts.idle_ns,
            overlapped_ns=parts.overlapped_ns,
            unassigned_ns=parts.exposed_ns - sum(parts.shares),
        )
        return exposed

    def table(self) -> Communication | None:
        """Return the communication so far; None where there was none."""
        totals: dict[str, Any] = dict(self._totals)
        if not totals:
            return None
        if self._on_device:
            totals["overlapped_ns"] = None
        rows = [_row(key, sums) for key, sums in self._rows.items()]
        rows.sort(key=lambda row: (-row.exposed_ns, -row.ns, -row.bytes, row.kind))
        return Communication(**totals, rows=tuple(rows), beyond=self._beyond + self._record.beyond)

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with its communication."""
        return replace(summary, communication=self.table())


def _key(call: CommCall) -> CommKey:
    size = call.bytes.bit_length() // 4
    return CommKey(call.kind, call.caller, call.group, call.ranks, str(call.phase), size)


def _intervals(starts: Nanoseconds, lengths: Nanoseconds, spans: Iterable[int]) -> list[Interval]:
    return [(int(starts[at]), int(starts[at]) + max(int(lengths[at]), 0)) for at in spans]


def bus_bandwidth(kind: str, ranks: int, count: int, ns: int) -> float | None:
    """Return the bus bandwidth in bytes per second; None for a kind without bytes, or without a time."""
    factor = BUS_FACTORS.get(kind)
    return None if factor is None or ns <= 0 or not count else factor(ranks) * count * 1e9 / ns


def _row(key: CommKey, sums: Counter[str]) -> CommRow:
    return CommRow(
        *key[:-1],
        calls=sums["calls"],
        bytes=sums["bytes"],
        timed=sums["timed"],
        ns=sums["ns"],
        exposed_ns=sums["exposed_ns"],
        bus_bytes_per_s=bus_bandwidth(key.kind, key.ranks, sums["timed_bytes"], sums["busy_ns"]),
    )
