"""Compare the ranks of a run by their own records. No rank waits for another, and none sends a message.

In data parallel training every rank's step is as long as the slowest rank's. The other ranks wait, in communication or
in the part of backward that belongs to no module (where DDP waits for its last buckets). The difference between ranks
is therefore in their own work: data, copies, forward and backward of modules, optimizer, user spans.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .._stats.intervals import Interval, median_of_values
from .._stats.median import median
from .._storage.records import part_names, parts_of
from .._storage.span_blocks import BlockReader
from .._storage.steps_jsonl import BAD_LINE, FrameDecoder
from ..frame import TRAINING_LANE, Nanoseconds, Phase, StepFrame

RANK_WINDOW_STEPS: Final = 256
"""Steps compared, the last ones in the records."""
LIVE_STEPS: Final = 32
"""Steps compared during the run."""
HEAD_BYTES: Final = 2**20
"""Bytes read at the beginning of a record, which has the layouts that its lines refer to, …"""
TAIL_BYTES: Final = 2**22
"""… and at its end."""
MIN_COMMON_STEPS: Final = 10
"""Steps that all ranks must have recorded."""

SpanKey = tuple[str, Phase]


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The comparison of ``world_size`` ranks; without ``steps``, ``missing`` gives the reason.

    ``rank`` is the rank whose own work takes longest. ``excess_ns`` is the difference to the other ranks' median in
    each step: the median and its interval. ``gain_ns`` is the median difference to the slowest other rank: no step
    can get shorter by more. ``phase`` and ``name`` have most of the excess, namely ``name_ns``. ``long_steps`` maps
    those of rank 0's longest steps that one rank's own work made long to that rank.
    """

    world_size: int
    missing: str | None = None
    steps: int = 0
    step_ns: int = 0
    rank: int = 0
    own_ns: tuple[int, ...] = ()
    """The median time of each rank's own work in a step."""
    excess_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)
    gain_ns: int = 0
    phase: Phase | None = None
    name: str | None = None
    name_ns: int = 0
    long_steps: Mapping[str, int] = field(default_factory=dict)

    @property
    def excess(self) -> Interval:
        """The median excess and its confidence interval."""
        return Interval(*self.excess_ns)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RankComparison:
        """Read back the result of ``dataclasses.asdict``."""
        phase = None if data["phase"] is None else Phase.add(data["phase"])
        converted = {"own_ns": tuple(data["own_ns"]), "excess_ns": tuple(data["excess_ns"]), "phase": phase}
        return cls(**{**data, **converted})


class Record:
    """The part of a rank's ``steps.jsonl`` that is compared: own work by step, and by row over all steps."""

    def __init__(self) -> None:
        self.own_ns: dict[int, int] = {}
        self.step_ns: dict[int, int] = {}
        self._rows: Counter[SpanKey] = Counter()

    def add(self, frame: StepFrame) -> None:
        """Add a step."""
        layout, self_ns = frame.layout, frame.layout.self_ns(frame.total_ns).tolist()
        own_ns = 0
        for name, fqn, phase, lane, ns in zip(
            layout.names, layout.fqns, layout.phases, layout.lanes, self_ns, strict=True
        ):
            if lane == TRAINING_LANE and phase.traits.own_work and not (phase is Phase.BACKWARD and fqn is None):
                self._rows[name, phase] += ns
                own_ns += ns
        self.own_ns[frame.step], self.step_ns[frame.step] = own_ns, frame.step_ns

    def row_means(self) -> dict[SpanKey, float]:
        """Return the mean self time of each row in a step."""
        return {key: ns / max(len(self.own_ns), 1) for key, ns in self._rows.items()}


def read_record(path: Path, steps: int, deadline: float = float("inf")) -> Record | None:
    """Read the last ``steps`` of a record without warm-up; None after the ``deadline`` (``time.monotonic``)."""
    record = Record()
    for number in reversed(parts_of(path)):
        lines_name, spans_name = part_names(number)
        blocks = BlockReader(path.with_name(spans_name))
        try:
            frames = _last_frames(path.with_name(lines_name), blocks, steps, deadline)
        finally:
            blocks.close()
        if frames is None:
            return None
        for frame in frames:
            if not frame.warmup:
                record.add(frame)
        steps -= len(frames)
        if steps <= 0:
            break
    return record


def _last_frames(path: Path, blocks: BlockReader, steps: int, deadline: float) -> list[StepFrame] | None:
    """Return the last ``steps`` of one part of a record; None after the ``deadline``."""
    decoder, frames = FrameDecoder(blocks), []
    lines = list(_lines(path))
    for at, line in enumerate(lines):
        is_last = at >= len(lines) - steps
        if not is_last and b'"layout":' not in line:
            continue
        if time.monotonic() > deadline:
            return None
        try:
            frame = decoder.decode(line)
        except BAD_LINE:  # a cut line, a layout that was not read
            continue
        if is_last:
            frames.append(frame)
    return frames


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        if size <= HEAD_BYTES + TAIL_BYTES:
            yield from file.read().splitlines()
            return
        yield from file.read(HEAD_BYTES).splitlines()
        file.seek(size - TAIL_BYTES)
        yield from file.read().splitlines()


def read_ranks(
    run: Path,
    world_size: int,
    *,
    steps: int = RANK_WINDOW_STEPS,
    longest: tuple[int, ...] = (),
    seconds: float | None = None,
) -> RankComparison | None:
    """Compare the ranks whose records are in a run's folder; None if that takes longer than ``seconds``."""
    deadline = float("inf") if seconds is None else time.monotonic() + seconds
    records: list[Record] = []
    absent = []
    for rank in range(world_size):
        path = run / f"rank{rank}" / "steps.jsonl"
        try:
            record = read_record(path, steps, deadline)
        except OSError:
            absent.append(rank)
            continue
        if record is None:
            return None
        records.append(record)
    if absent:
        which = ", ".join(map(str, absent[:4])) + (", …" if len(absent) > 4 else "")
        why = "not in this run's folder (on another machine, or without the sink jsonl)"
        return RankComparison(world_size, f"the records of rank {which}: {why}")
    return compare_ranks(records, longest)


def median_of_others(times: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return for each rank the median of the other ranks' times, in each column.

    ``times`` has one row for each of at least two ranks. A rank's excess over this median identifies a straggler, in
    the rule and in ``autoprof.compat.stragglers``: unlike a mean, it is not affected by another slow rank.
    """
    values = np.asarray(times, dtype=np.float64)
    return np.stack([median(np.delete(values, rank, axis=0), axis=0) for rank in range(len(values))])


def compare_ranks(records: list[Record], longest: tuple[int, ...] = ()) -> RankComparison:
    """Find the rank whose own work takes longest, step by step."""
    count = len(records)
    common = sorted(set.intersection(*(set(record.own_ns) for record in records)))
    if len(common) < MIN_COMMON_STEPS:
        missing = f"steps that all ranks have recorded: {MIN_COMMON_STEPS} needed, {len(common)} so far"
        return RankComparison(count, missing)
    own = np.array([[record.own_ns[step] for step in common] for record in records], dtype=np.int64)
    lengths = np.array([[record.step_ns[step] for step in common] for record in records], dtype=np.int64)
    excess = own - median_of_others(own)
    slowest = int(median(excess, axis=1).argmax())
    others = np.delete(own, slowest, axis=0)
    low, middle, high = median_of_values(excess[slowest].astype(np.int64))
    (name, phase), ns = _largest_row_excess([record.row_means() for record in records], slowest)
    return RankComparison(
        world_size=count,
        steps=len(common),
        step_ns=round(float(median(lengths))),
        rank=slowest,
        own_ns=tuple(round(float(ns)) for ns in median(own, axis=1)),
        excess_ns=(low, middle, high),
        gain_ns=max(round(float(median(own[slowest] - others.max(axis=0)))), 0),
        phase=phase,
        name=name,
        name_ns=round(ns),
        long_steps=_explain_long_steps(own, lengths[0], common, longest),
    )


def _largest_row_excess(
    rows: list[dict[SpanKey, float]], slowest: int
) -> tuple[tuple[str | None, Phase | None], float]:
    """Return the row in which the slowest rank exceeds the other ranks' median by most."""
    keys = list(rows[slowest])
    if not keys:
        return (None, None), 0.0
    means = np.array([[row.get(key, 0.0) for key in keys] for row in rows])
    excess = (means - median_of_others(means))[slowest]
    ns, key = max(zip(excess.tolist(), keys, strict=True), key=lambda entry: (entry[0], entry[1][0]))
    return key, ns


def _explain_long_steps(
    own: Nanoseconds, lengths: Nanoseconds, steps: list[int], longest: tuple[int, ...]
) -> dict[str, int]:
    """Return the rank whose own work explains half of the excess of each long step over the median step."""
    usual, typical = median(own, axis=1), float(median(lengths))
    explained = {}
    for step in set(longest) & set(steps):
        at = steps.index(step)
        extra = own[:, at] - usual
        rank = int(extra.argmax())
        if 2 * extra[rank] >= lengths[at] - typical > 0:
            explained[str(step)] = rank
    return explained


class RankMonitor:
    """Compare the ranks during the run: on rank 0, every ``INTERVAL_S``, for at most ``TIME_LIMIT_S``."""

    INTERVAL_S: Final = 30.0
    TIME_LIMIT_S: Final = 0.02

    def __init__(self, run: Path | None, rank: int, world_size: int) -> None:
        self._run = run
        self._rank = rank
        self._world_size = world_size
        self._last: RankComparison | None = None
        self._due = time.monotonic() + self.INTERVAL_S

    def comparison(self, longest: tuple[int, ...], *, final: bool) -> RankComparison | None:
        """Return the last comparison, renewed when it is due; ``final`` compares all steps without a time limit."""
        if self._world_size <= 1 or self._rank:
            return None
        if self._run is None:
            return RankComparison(self._world_size, "the ranks' records: keep the sink jsonl on")
        if final:
            self._last = read_ranks(self._run, self._world_size, longest=longest)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + self.INTERVAL_S
            seconds = self.TIME_LIMIT_S
            found = read_ranks(self._run, self._world_size, steps=LIVE_STEPS, longest=longest, seconds=seconds)
            self._last = found or self._last
        return self._last
