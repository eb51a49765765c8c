"""Rank 0's table of the other ranks: their last messages, and which of them are late or missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .message import Message
from .record import RankRecord

LATE_INTERVALS: Final = 3.0
"""A rank whose last message is older than this many intervals is late."""

Key = TypeVar("Key", bound=Hashable)
Number = TypeVar("Number", np.int64, np.float64)

RankStatus = Literal["alive", "late", "closed", "missing"]
"""``closed``: it has sent its last message. ``missing``: it has never sent one."""


class RankState(NamedTuple):
    """A rank as rank 0 sees it, and its last step that is known."""

    rank: int
    status: RankStatus
    step: int | None = None


@dataclass(slots=True)
class _RankMessages:
    """The messages of one rank; the last one was read at ``last_s``."""

    last_s: float
    messages: deque[Message]


def kept_messages(world_size: int) -> int:
    """Return the number of messages of each rank that rank 0 keeps."""
    # Messages kept of all ranks, of some 20 kB each.
    return min(max(6400 // world_size, 1), 8)


class RankTable:
    """The messages of ranks 1 to ``world_size`` − 1."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._kept = kept_messages(world_size)
        self._entries: dict[int, _RankMessages] = {}

    def add(self, message: Message, now: float) -> None:
        """Take a message, unless it is known.

        A store that outlives a start of the ranks has the messages of the start before: those of another process.
        """
        rank = message.rank
        if rank in self._entries and self._entries[rank].messages[-1].pid != message.pid:
            del self._entries[rank]
        entry = self._entries.setdefault(rank, _RankMessages(now, deque(maxlen=self._kept)))
        if entry.messages and entry.messages[-1].serial >= message.serial:
            return
        entry.last_s = now
        if message.closing and len(message.record.steps):  # it has the steps of all others, of which some were missed
            entry.messages.clear()
        entry.messages.append(message)

    def rate(self, now: float, interval_s: float) -> float:
        """Return the lowest rate that a rank affords, of those that are not late."""
        fresh = [
            entry.messages[-1].rate
            for entry in self._entries.values()
            if now - entry.last_s <= LATE_INTERVALS * interval_s and not entry.messages[-1].closing
        ]
        return min(fresh, default=1.0)

    def states(self, now: float, interval_s: float) -> list[RankState]:
        """Return the state of each rank but rank 0."""
        return [self._state(rank, now, interval_s) for rank in range(1, self._world_size)]

    def _state(self, rank: int, now: float, interval_s: float) -> RankState:
        entry = self._entries.get(rank)
        if entry is None:
            return RankState(rank, "missing")
        step = max((int(one.record.steps[-1]) for one in entry.messages if len(one.record.steps)), default=None)
        if entry.messages[-1].closing:
            return RankState(rank, "closed", step)
        is_late = now - entry.last_s > LATE_INTERVALS * interval_s
        return RankState(rank, "late" if is_late else "alive", step)

    def records(self) -> dict[int, RankRecord]:
        """Return the steps of each rank, from all messages that are kept."""
        return {
            rank: join_records([message.record for message in entry.messages]) for rank, entry in self._entries.items()
        }


def join_records(records: list[RankRecord]) -> RankRecord:
    """Return the steps of several records of one rank; of a step that is in several, the one of the last."""
    if len(records) == 1:
        return records[0]
    steps = np.concatenate([record.steps for record in records])
    _, last = np.unique(steps[::-1], return_index=True)
    chosen = len(steps) - 1 - last

    def join(columns: list[Mapping[Key, npt.NDArray[Number]]], absent: Number) -> dict[Key, npt.NDArray[Number]]:
        joined = {}
        for key in dict.fromkeys(key for column in columns for key in column):
            parts = [
                column.get(key, np.full(len(record.steps), absent))
                for column, record in zip(columns, records, strict=True)
            ]
            joined[key] = np.concatenate(parts)[chosen]
        return joined

    return RankRecord(
        steps[chosen],
        np.concatenate([one.step_ns for one in records])[chosen],
        np.concatenate([one.own_ns for one in records])[chosen],
        join([one.rows for one in records], np.int64(0)),
        {key: parent for one in records for key, parent in one.parents.items()},
        join([one.scalars for one in records], np.float64("nan")),
    )
