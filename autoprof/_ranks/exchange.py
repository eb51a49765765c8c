"""Exchange the last steps of all ranks in the background, and agree on the rate at which steps are recorded.

Each rank's thread puts a message into a store, at intervals of seconds. Rank 0's thread reads them all,
compares the ranks, and puts the lowest rate that a rank affords there for all. No rank ever waits for another: one that
is late, dead or missing has an old message there, or none.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from itertools import count
from threading import Event, Lock, Thread
from typing import Final, NamedTuple, Protocol

from .._core.failures import describe
from .._process.hosts import host_number
from .channel import Channel
from .comparison import RankComparison
from .message import MESSAGE_STEPS, Message, Sender, choose_steps, decode, encode, keep_largest
from .record import OwnWork, RankRecord
from .table import RankState, RankTable, is_running, kept_messages

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

    def spend(self, ns: int) -> None:
        """Take the cost of work between the steps."""


class RankPlace(NamedTuple):
    """The place of this process among the ranks."""

    rank: int
    world_size: int


class Exchange:
    """The thread of one rank. ``connect`` returns the channel once there is one; it raises where none is possible.

    ``rates`` are those of the rank's sampler. On rank 0 ``compare`` compares the ranks' records.
    """

    def __init__(
        self,
        place: RankPlace,
        rates: Rates,
        connect: Callable[[int], Channel | None],
        compare: Callable[[dict[int, RankRecord]], RankComparison],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failure: str | None = None
        """The reason for which the exchange has ended, or has never begun."""
        self.connected = False
        self.place = place
        self.folder: str | None = None
        """The folder of rank 0's run, where rank 0 has announced it."""
        self.work_ns = 0
        """Processor time of the thread."""
        self.messages = 0
        """Messages sent."""
        self.comparison: RankComparison | None = None
        """The last comparison of the ranks, on rank 0."""
        self.work = OwnWork(256)
        self._compare = compare
        self._compared_at = clock() + FIRST_COMPARISON_S
        self._rates = rates
        self._connect = connect
        self._clock = clock
        self._session = next(_sessions)
        self._pid = os.getpid()
        self._stop = Event()
        self._lock = Lock()
        self._channel: Channel | None = None
        self._last_sent = 0
        self._reply_known = False
        host = host_number()
        self._sender = Sender(place.rank, self._pid, host)
        self._table = RankTable(place.world_size, is_running=lambda sender: is_running(sender, host))
        self._thread = Thread(target=self._run, name="autoprof-ranks", daemon=True)

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
        usual = max(usual, self.place.world_size / 256)
        if self._channel is not None and self._channel.grows:
            # The longest interval where the store keeps all messages: there each one is twice the last.
            usual = min(first_interval_s * 2.0 ** min(self.messages, 30), 3600.0)
        return usual

    # On the thread.

    def _run(self) -> None:
        try:
            # The time between two checks for a process group, as long as there is none.
            while not self._stop.wait(0.25 if self._channel is None else self.interval_s):
                self.exchange()
            self._end()
        except Exception as error:  # the store's server has gone: the training has ended, or is about to
            self.failure = describe(error)
        finally:
            self._channel = None

    def exchange(self, *, closing: bool = False) -> None:
        """Send a message and read those of other ranks; do nothing while there is no channel."""
        began_ns = time.thread_time_ns()
        if self._channel is None:
            self._channel = self._connect(self._session)
            self.connected = self._channel is not None
        if self._channel is not None:
            if self.place.rank:
                self._send(self._channel, closing=closing)
                self._read_rate(self._channel)
                self._read_folder(self._channel)
            else:
                self._collect(self._channel)
                if not self._stop.is_set() and self._clock() >= self._compared_at:
                    self._compare_now()
        self.work_ns += time.thread_time_ns() - began_ns

    def _send(self, channel: Channel, *, closing: bool) -> None:
        """Put the steps since the last message there; with the last message, all steps that rank 0 keeps."""
        known = self.work.steps
        if closing:
            chosen = known[-MESSAGE_STEPS * kept_messages(self.place.world_size) :]
        else:
            chosen = choose_steps(known[known > self._last_sent])
        self._last_sent = int(known[-1]) if len(known) else self._last_sent
        record = keep_largest(self.work.record(frozenset(chosen.tolist()), pause=_let_others_run))
        rank, first = self.place.rank, not self.messages
        self.messages += 1
        message = Message(self._sender, self.messages, self._rates.affordable_rate, closing, record)
        channel.put(f"message/{rank}", encode(message))
        if first:
            channel.join(rank)

    def _read_rate(self, channel: Channel) -> None:
        self._reply_known = self._reply_known or channel.has("rate")
        if self._reply_known:
            (self._rates.agreed_rate,) = struct.unpack("<d", channel.get(["rate"])[0])

    def _read_folder(self, channel: Channel) -> None:
        if self.folder is None and channel.has("folder"):
            self.folder = channel.get(["folder"])[0].decode()

    def _collect(self, channel: Channel) -> None:
        """Read the messages of all ranks, and put the rate there that all afford."""
        table, now = self._table, self._clock()
        with self._lock:
            missing = table.missing()
        new = channel.joined(missing) if missing else set()
        ranks = sorted(set(range(1, self.place.world_size)) - set(missing) | new)
        texts = channel.get([f"message/{rank}" for rank in ranks])
        with self._lock:
            for text in texts:
                table.add(decode(text), now)
        self._rates.agreed_rate = table.rate(now, self.interval_s)
        rate = min(self._rates.agreed_rate, self._rates.affordable_rate)
        channel.put("rate", struct.pack("<d", rate))
        if not self.messages and self.folder is not None:
            channel.put("folder", self.folder.encode())
        self.messages += 1

    def _compare_now(self) -> None:
        began = self._clock()
        self.comparison = self._compare(self.records())
        now = self._clock()
        usual = 30.0 if self.comparison.missing is None else FIRST_COMPARISON_S
        # The part of the time that comparisons take at most.
        self._compared_at = now + max(usual, (now - began) / 0.002)

    def _end(self) -> None:
        """Send the last message; on rank 0 read those of the others, for a short time."""
        if self._channel is None:
            return
        self.exchange(closing=True)
        until = self._clock() + CLOSING_S
        while not self.place.rank and self._clock() < until and self._awaited():
            time.sleep(0.02)
            self.exchange()

    def _awaited(self) -> bool:
        """Return whether a rank that is alive has not sent its last message."""
        return any(state.status == "alive" for state in self.states())

    # On the training thread.

    def finish(self) -> None:
        """Send or read the last messages, and end the thread. A process forked from the session's touches nothing."""
        if os.getpid() != self._pid or self._stop.is_set():
            return
        self._stop.set()
        if self._thread.ident is not None:
            # The longest that another rank waits until its last message is sent.
            self._thread.join(1.0 + (0.0 if self.place.rank else CLOSING_S))

    def states(self) -> list[RankState]:
        """Return the states of the other ranks, on rank 0."""
        with self._lock:
            return self._table.states(self._clock(), self.interval_s)

    def records(self) -> dict[int, RankRecord]:
        """Return the steps of each rank that are known, on rank 0, with as many rows of each."""
        own = {0: keep_largest(self.work.record())}
        with self._lock:
            return own | self._table.records()


def _let_others_run() -> None:
    time.sleep(0)
