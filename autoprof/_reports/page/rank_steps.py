"""Steps of each rank from the heads of its records: lengths and phases, without the spans behind them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..._storage.records import record_files
from ..._storage.span_blocks import MAX_NS
from ..._storage.steps_jsonl import BAD_LINE, duration_of
from ..._units import NS_PER_MS
from .history import count_lines

MAX_RANKS: Final = 64
"""Ranks on the page; of more, the first ones."""
RANK_BINS: Final = 128
_END_OF_HEAD: Final = b',"memory":'


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps of one rank: their number, mean length and phases in nanoseconds, and the mean of each bin."""

    rank: int
    steps: int
    mean_ns: float
    phases: Mapping[str, float]
    first: tuple[int, ...]
    """The first step of each bin."""
    bins_ns: tuple[float, ...]


def read_rank(path: Path, rank: int) -> RankSteps:
    """Read the heads of one rank's records; a line that is cut is skipped."""
    stride = max(-(-count_lines(path) // RANK_BINS), 1)
    phases: Counter[str] = Counter()
    first: list[int] = []
    sums: list[list[int]] = []
    total_ns = steps = 0
    for head in _heads(path):
        ns = head.get("device_duration_ns") or duration_of(head)
        if steps % stride == 0:
            first.append(head["step"])
            sums.append([0, 0])
        sums[-1][0] += ns
        sums[-1][1] += 1
        steps += 1
        total_ns += ns
        phases.update({phase: round(ms * NS_PER_MS) for phase, ms in head["phases_ms"].items()})
    count = max(steps, 1)
    means = {phase: ns / count for phase, ns in phases.items()}
    return RankSteps(rank, steps, total_ns / count, means, tuple(first), tuple(ns / of for ns, of in sums))


def _heads(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the part of each line before its memory and spans, of steps after the warm-up."""
    for part in record_files(path):
        for line in _lines(part):
            end = line.find(_END_OF_HEAD)
            try:
                head = json.loads(line[:end] + b"}" if end > 0 else line)
                if not head["warmup"] and _is_whole(head):
                    yield head
            except BAD_LINE:
                continue


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as lines:
        yield from lines


def _is_whole(head: dict[str, Any]) -> bool:
    """Return whether the values that are used of a head are numbers of their range."""
    times = [duration_of(head), head.get("device_duration_ns") or 0, head["step"]]
    phases = head["phases_ms"].values()
    return (
        all(type(ns) is int and 0 <= ns <= MAX_NS for ns in times)
        and all(type(ms) in (int, float) and abs(ms) <= MAX_NS / NS_PER_MS for ms in phases)
    )  # fmt: skip
