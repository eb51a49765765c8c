"""How the ranks of one run compare, from their own records: no rank waits for another, or sends it a word.

In data parallel training every rank's step is as long as the slowest one's: the others wait, in communication, or in
what of a backward pass is in no module (where DDP waits for its last buckets). What tells them apart is the time that a
rank spends on its own work: data, copies, modules forward and backward, optimizer, spans of the user's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from .._storage.steps_jsonl import FrameDecoder
from ..frame import TRAINING_LANE, Nanoseconds, Phase, StepFrame
from .interval import Interval

STEPS: Final = 256
"""Steps compared, the last ones that the records hold."""
LIVE_STEPS: Final = 32
"""Steps compared while the run goes on."""
HEAD_BYTES: Final = 2**20
"""How much is read of a record's begin, where the layouts are that its lines refer to, …"""
TAIL_BYTES: Final = 2**22
"""… and of its end."""
FEWEST: Final = 10
"""Steps that all ranks must have in common."""

Key = tuple[str, Phase]


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What the records of ``world_size`` ranks come to; without ``steps``, ``missing`` says why.

    ``rank`` is the one whose own work takes longest. ``excess_ns`` is by how much more than the other ranks' median,
    step by step: the median and its interval. ``gain_ns`` is by how much more than the slowest of the others' in the
    median: no step gets shorter by more. ``phase`` and ``name`` are where most of it is, ``name_ns`` how much of it.
    ``long_steps`` has the rank whose own work made one of rank 0's longest steps long.
    """

    world_size: int
    missing: str | None = None
    steps: int = 0
    step_ns: int = 0
    rank: int = 0
    own_ns: tuple[int, ...] = ()
    """Each rank's own work: the median of a step."""
    excess_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)
    gain_ns: int = 0
    phase: Phase | None = None
    name: str | None = None
    name_ns: int = 0
    long_steps: Mapping[str, int] = field(default_factory=dict)

    @property
    def excess(self) -> Interval:
        """The median of the excess, and where it may lie."""
        return Interval(*self.excess_ns)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RankFacts:
        """Read back what ``dataclasses.asdict`` made."""
        phase = None if data["phase"] is None else Phase.add(data["phase"])
        turned = {"own_ns": tuple(data["own_ns"]), "excess_ns": tuple(data["excess_ns"]), "phase": phase}
        return cls(**{**data, **turned})


class Record:
    """What is read of one rank's ``steps.jsonl``: its own work by step, and by row over all of them."""

    def __init__(self) -> None:
        self.own: dict[int, int] = {}
        self.length: dict[int, int] = {}
        self._rows: Counter[Key] = Counter()

    def add(self, frame: StepFrame) -> None:
        """Take one step."""
        layout, own_ns = frame.layout, frame.layout.self_ns(frame.total_ns).tolist()
        whole = 0
        for name, fqn, phase, lane, ns in zip(
            layout.names, layout.fqns, layout.phases, layout.lanes, own_ns, strict=True
        ):
            if lane == TRAINING_LANE and phase.traits.own_work and not (phase is Phase.BACKWARD and fqn is None):
                self._rows[name, phase] += ns
                whole += ns
        self.own[frame.step], self.length[frame.step] = whole, frame.step_ns

    def row_ns(self) -> dict[Key, float]:
        """Return the mean of each row's own time a step."""
        return {key: ns / max(len(self.own), 1) for key, ns in self._rows.items()}


def read_record(path: Path, steps: int, until: float = float("inf")) -> Record | None:
    """Read the last ``steps`` of a record, warm-up apart; None when that is not done ``until`` (``time.monotonic``)."""
    record, decoder = Record(), FrameDecoder()
    lines = list(_lines(path))
    for at, line in enumerate(lines):
        late = at >= len(lines) - steps
        if not late and b'"layout":' not in line:
            continue
        if time.monotonic() > until:
            return None
        try:
            frame = decoder.decode(line)
        except (ValueError, KeyError, TypeError, AttributeError):  # a cut line, a layout that was not read
            continue
        if late and not frame.warmup:
            record.add(frame)
    return record


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
    run: Path, world_size: int, *, steps: int = STEPS, longest: tuple[int, ...] = (), seconds: float | None = None
) -> RankFacts | None:
    """Compare the ranks whose records lie in a run's folder; None when the ``seconds`` did not suffice."""
    until = float("inf") if seconds is None else time.monotonic() + seconds
    records: list[Record] = []
    absent = []
    for rank in range(world_size):
        path = run / f"rank{rank}" / "steps.jsonl"
        try:
            record = read_record(path, steps, until)
        except OSError:
            absent.append(rank)
            continue
        if record is None:
            return None
        records.append(record)
    if absent:
        which = ", ".join(map(str, absent[:4])) + (", …" if len(absent) > 4 else "")
        why = "not in this run's folder (on another machine, or without the sink jsonl)"
        return RankFacts(world_size, f"the records of rank {which}: {why}")
    return compare(records, longest)


def compare(records: list[Record], longest: tuple[int, ...] = ()) -> RankFacts:
    """Find the rank whose own work takes longest, step by step."""
    count = len(records)
    common = sorted(set.intersection(*(set(record.own) for record in records)))
    if len(common) < FEWEST:
        return RankFacts(count, f"steps that all ranks have recorded: {FEWEST} needed, {len(common)} so far")
    own = np.array([[record.own[step] for step in common] for record in records], dtype=np.int64)
    lengths = np.array([[record.length[step] for step in common] for record in records], dtype=np.int64)
    excess = np.stack([own[rank] - np.median(np.delete(own, rank, axis=0), axis=0) for rank in range(count)])
    slow = int(np.median(excess, axis=1).argmax())
    others = np.delete(own, slow, axis=0)
    rows = [record.row_ns() for record in records]
    low, middle, high = Interval.of_values(excess[slow].astype(np.int64))
    (name, phase), ns = _worst_row(rows, slow)
    return RankFacts(
        world_size=count,
        steps=len(common),
        step_ns=round(float(np.median(lengths))),
        rank=slow,
        own_ns=tuple(round(float(median)) for median in np.median(own, axis=1)),
        excess_ns=(low, middle, high),
        gain_ns=max(round(float(np.median(own[slow] - others.max(axis=0)))), 0),
        phase=phase,
        name=name,
        name_ns=round(ns),
        long_steps=_blame(own, lengths[0], common, longest),
    )


def _worst_row(rows: list[dict[Key, float]], slow: int) -> tuple[tuple[str | None, Phase | None], float]:
    """Return the row in which the slow rank spends most beyond the others' median."""
    others = [row for rank, row in enumerate(rows) if rank != slow]
    beyond = {key: ns - float(np.median([row.get(key, 0.0) for row in others])) for key, ns in rows[slow].items()}
    if not beyond:
        return (None, None), 0.0
    worst = max(beyond, key=lambda key: (beyond[key], key[0]))
    return worst, beyond[worst]


def _blame(own: Nanoseconds, lengths: Nanoseconds, steps: list[int], longest: tuple[int, ...]) -> dict[str, int]:
    """Say which rank's own work explains half of what each of these steps takes longer than the median."""
    usual, typical = np.median(own, axis=1), float(np.median(lengths))
    blamed = {}
    for step in set(longest) & set(steps):
        at = steps.index(step)
        extra = own[:, at] - usual
        rank = int(extra.argmax())
        if 2 * extra[rank] >= lengths[at] - typical > 0:
            blamed[str(step)] = rank
    return blamed


class Watch:
    """Compare the ranks while the run goes on: on rank 0, now and then, within a time that no step notices."""

    EVERY_S: Final = 30.0
    SECONDS: Final = 0.02

    def __init__(self, run: Path | None, rank: int, world_size: int) -> None:
        self._run = run
        self._rank = rank
        self._world_size = world_size
        self._last: RankFacts | None = None
        self._due = time.monotonic() + self.EVERY_S

    def facts(self, longest: tuple[int, ...], *, final: bool) -> RankFacts | None:
        """Return how the ranks compare; ``final`` reads as much as there is to compare."""
        if self._world_size <= 1 or self._rank:
            return None
        if self._run is None:
            return RankFacts(self._world_size, "the ranks' records: keep the sink jsonl on")
        if final:
            self._last = read_ranks(self._run, self._world_size, longest=longest)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + self.EVERY_S
            seconds = self.SECONDS
            found = read_ranks(self._run, self._world_size, steps=LIVE_STEPS, longest=longest, seconds=seconds)
            self._last = found or self._last
        return self._last
