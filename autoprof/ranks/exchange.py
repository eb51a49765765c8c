"""Exchange the last steps of all ranks in the background, and agree on the rate at which steps are recorded.

Each rank's thread puts a message into a store, at intervals of seconds. Rank 0's thread reads them all,
compares the ranks, and puts the lowest rate that a rank affords there for all. No rank ever waits for another: one that
is late, dead or missing has an old message there, or none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple, Protocol

from ..base.allowance import Allowance
from ..base.failures import describe
from .comparison import RankComparison, compare_ranks
from .message import MESSAGE_STEPS, Message, choose_steps, decode, encode, keep_largest
from .record import OwnWork, RankRecord
from .table import RankState, RankTable, kept_messages

FIRST_MESSAGES: Final = 8
INTERVAL_S: Final = 5.0
"""The time between later messages."""
CLOSING_S: Final = 2.0
"""The longest that rank 0 waits at its end for the last messages of the others."""
FIRST_COMPARISON_S: Final = 4.0
"""The time until the first comparison of the ranks, and the next one as long as steps are missing."""

_sessions = count()


class Rates(Protocol):
    """The part of the steps that this rank affords, and that all others do."""

    agreed_rate: float

    @property
    def affordable_rate(self) -> float:
        """The part of the steps that this rank affords."""


class RankPlace(NamedTuple):
    """The place of this process among the ranks."""

    rank: int
    world_size: int


class Exchange:
    """The thread of one rank. ``connect`` returns the store once there is one; it raises where none is possible.

    ``rates`` are those of the rank's controller. ``allowance`` pays for the thread, which competes with the training
    for the processor.
    """

    def __init__(
        self,
        place: RankPlace,
        rates: Rates,
        connect: Callable[[int], Any | None],
        allowance: Allowance,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failure: str | None = None
        """The reason for which the exchange has ended, or has never begun."""
        self.connected = False
        self.place = place
        self.messages = 0
        """Messages sent."""
        self.comparison: RankComparison | None = None
        """The last comparison of the ranks, on rank 0."""
        self.work = OwnWork(256)
        self._compared_at = clock() + FIRST_COMPARISON_S
        self._rates = rates
        self._connect = connect
        self._allowance = allowance
        self._clock = clock
        self._session = next(_sessions)
        self._pid = os.getpid()
        self._stop = Event()
        self._has_ended = False
        self._lock = Lock()
        self._store: Any = None
        self._last_sent = 0
        self._table = RankTable(place.world_size)
        self._thread = Thread(target=self._run, name="autoprof-ranks", daemon=True)

    @property
    def work_ns(self) -> int:
        """Processor time of the thread."""
        return self._allowance.spent_ns

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def interval_s(self) -> float:
        """The time until the next message."""
        # The time between the first messages.
        first_interval_s = 1.0
        usual = first_interval_s if self.messages < FIRST_MESSAGES else INTERVAL_S
        # The most messages that rank 0 reads in a second.
        return max(usual, self.place.world_size / 256)

    # On the thread.

    def _run(self) -> None:
        try:
            # The time between two checks for a process group, as long as there is none.
            while not self._stop.wait(self.interval_s if self.connected else 0.25):
                self.exchange()
            self._end()
        except Exception as error:  # the store's server has gone: the training has ended, or is about to
            self.failure = describe(error)
        finally:
            self._store = None

    def exchange(self, *, closing: bool = False) -> None:
        """Send a message and read those of other ranks; do nothing while there is no store."""
        with self._allowance.work():
            self._exchange(closing=closing)

    def _exchange(self, *, closing: bool) -> None:
        if not self.connected:
            self._store = self._connect(self._session)
            self.connected = self._store is not None
        if self.connected:
            if self.place.rank:
                self._send(closing=closing)
                if self._store.check(["rate"]):
                    self._rates.agreed_rate = float(self._store.get("rate"))
            else:
                self._collect()
                if not self._stop.is_set() and self._clock() >= self._compared_at:
                    self._compare_now()
            self.messages += 1

    def _send(self, *, closing: bool) -> None:
        """Put the steps since the last message there; with the last message, all steps that rank 0 keeps."""
        known = self.work.steps
        if closing:
            chosen = known[-MESSAGE_STEPS * kept_messages(self.place.world_size) :]
        else:
            chosen = choose_steps(known[known > self._last_sent])
        self._last_sent = int(known[-1]) if len(known) else self._last_sent
        record = keep_largest(self.work.record(frozenset(chosen.tolist())))
        place, rate = self.place.rank, self._rates.affordable_rate
        message = Message(place, self._pid, self.messages, rate, closing, record)
        self._store.set(f"message/{self.place.rank}", encode(message))
        if not self.messages:
            self._store.append("joined", f"{self.place.rank},")

    def _collect(self) -> None:
        """Read the messages of all ranks, and put the rate there that all afford."""
        joined = self._store.get("joined").split(b",")[:-1] if self._store.check(["joined"]) else []
        keys = [f"message/{int(rank)}" for rank in joined]
        # Keys read in one call, so that the store's server can answer the training between two calls.
        parts = [keys[at : at + 256] for at in range(0, len(keys), 256)]
        messages = [decode(bytes(text)) for part in parts for text in self._store.multi_get(part)]
        now = self._clock()
        with self._lock:
            for message in messages:
                self._table.add(message, now)
        self._rates.agreed_rate = self._table.rate(now, self.interval_s)
        self._store.set("rate", str(min(self._rates.agreed_rate, self._rates.affordable_rate)))

    def _compare_now(self) -> None:
        began = self._clock()
        self.comparison = compare_ranks(self.records(), world_size=self.place.world_size)
        now = self._clock()
        usual = 30.0 if self.comparison.missing is None else FIRST_COMPARISON_S
        # The part of the time that comparisons take at most.
        self._compared_at = now + max(usual, (now - began) / 0.002)

    def _end(self) -> None:
        """Send the last message, in a short run the first one; on rank 0 read those of the others, for a short time."""
        self.exchange(closing=True)
        if not self.connected:
            return
        until = self._clock() + CLOSING_S
        while not self.place.rank and self._clock() < until and any(one.status == "alive" for one in self.states()):
            time.sleep(0.02)
            self.exchange()

    # On the training thread.

    def finish(self) -> None:
        """Send or read the last messages, and end the thread. A process forked from the session's touches nothing."""
        if os.getpid() != self._pid or self._stop.is_set():
            return
        self._stop.set()
        if self._thread.ident is not None:
            # The longest that another rank waits until its last message is sent.
            self._thread.join(1.0 + (0.0 if self.place.rank else CLOSING_S))
        self._has_ended = True

    def states(self) -> list[RankState]:
        """Return the states of the other ranks, on rank 0; at the end, one without its last message is late."""
        with self._lock:
            return self._table.states(self._clock(), 0.0 if self._has_ended else self.interval_s)

    def records(self) -> dict[int, RankRecord]:
        """Return the steps of each rank that are known, on rank 0, with as many rows of each."""
        own = {0: keep_largest(self.work.record())}
        with self._lock:
            return own | self._table.records()
