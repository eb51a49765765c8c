"""The exchange between ranks, over a board: no rank waits for another, and one that is not there is named."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoprof._ranks import MIN_COMMON_STEPS, OwnWork, RankMonitor, RankPlace, compare_known
from autoprof._ranks.exchange import FIRST_COMPARISON_S, FIRST_MESSAGES, INTERVAL_S, Exchange
from autoprof._ranks.message import Message, Sender
from autoprof._ranks.table import RankTable
from autoprof._storage.steps_jsonl import FrameEncoder
from autoprof.frame import Phase, Span
from autoprof.testing import make_frame

MS = 1_000_000


@dataclass
class Board:
    """A board of one process, with a count of the bytes put there."""

    grows: bool = False
    texts: dict[str, bytes] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    put_bytes: int = 0

    def put(self, key: str, value: bytes) -> None:
        """Set a key."""
        self.texts[key] = value
        self.put_bytes += len(value)

    def get(self, keys: Sequence[str]) -> list[bytes]:
        """Return values; a missing key would block in a store, and fails here."""
        return [self.texts[key] for key in keys]

    def join(self, rank: int) -> None:
        """Add a rank."""
        self.ranks.add(rank)

    def joined(self, missing: Iterable[int]) -> set[int]:
        """Return those of the missing ranks that have joined."""
        return self.ranks & set(missing)

    def has(self, key: str) -> bool:
        """Return whether the key is set."""
        return key in self.texts


@dataclass
class Rates:
    """The rates of a sampler."""

    affordable_rate: float = 1.0
    agreed_rate: float = 1.0
    spent_ns: int = 0

    def spend(self, ns: int) -> None:
        """Count the cost."""
        self.spent_ns += ns


@dataclass
class World:
    """The ranks of a run, their board and their clock."""

    size: int
    board: Board = field(default_factory=Board)
    now: float = 0.0
    ranks: list[Exchange] = field(default_factory=list)
    rates: list[Rates] = field(default_factory=list)

    def __post_init__(self) -> None:
        for rank in range(self.size):
            self.rates.append(Rates())
            self.ranks.append(self._make(rank))

    def _make(self, rank: int) -> Exchange:
        place = RankPlace(rank, self.size)
        return Exchange(
            place,
            self.rates[rank],
            lambda session: self.board,
            lambda records: compare_known(records, self.size),
            clock=lambda: self.now,
        )

    def train(self, rank: int, steps: range, backward_ms: float = 60) -> None:
        """Add recorded steps to a rank."""
        for step in steps:
            self.ranks[rank].work.add(make_step(step, backward_ms))

    def exchange(self, *ranks: int, closing: bool = False) -> None:
        """Let these ranks send, or rank 0 read; a second passes after it."""
        for rank in ranks or range(self.size):
            self.ranks[rank].exchange(closing=closing)
        self.now += 1.0


def make_step(step: int, backward_ms: float = 60, name: str = "encoder") -> Any:
    """Return a step with a module whose backward takes this long."""
    spans = [
        Span(name, name, Phase.FORWARD, None, 0, 30 * MS),
        Span("(backward)", None, Phase.BACKWARD, None, 30 * MS, 100 * MS),
        Span(name, name, Phase.BACKWARD, 1, 30 * MS, round(backward_ms * MS)),
    ]
    return make_frame(spans, step=step, duration_ns=max(140, round(backward_ms) + 40) * MS)


def test_the_slow_rank_is_found_from_messages() -> None:
    """With its module and phase, on rank 0 alone, without a file."""
    world = World(3)
    for rank in range(3):
        world.train(rank, range(1, 31), 80 if rank == 2 else 60)
    world.exchange(1, 2, 0)
    found = RankMonitor(None, 0, 3, world.ranks[0]).comparison((), final=True)
    assert found is not None
    assert (found.missing, found.rank, found.name, found.phase) == (None, 2, "encoder", Phase.BACKWARD)
    assert found.excess.middle == pytest.approx(20 * MS, rel=1e-3)
    assert RankMonitor(None, 1, 3, world.ranks[1]).comparison((), final=True) is None


def test_a_rank_whose_last_message_is_late_is_compared_by_its_records(tmp_path: Path) -> None:
    """Its message of the first steps has none in common with those of the others."""
    world = World(3)
    for rank in range(3):
        work = OwnWork(100)
        for step in range(1, 41):
            work.add(make_step(step, 80 if rank == 2 else 60))
        for frame in work._frames:
            if rank != 2 or frame.step <= 5:
                world.ranks[rank].work.add(frame)
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        encoder = FrameEncoder()
        lines = "".join(encoder.encode(frame) for frame in work._frames)
        (folder / "steps.jsonl").write_text(lines, encoding="utf-8")
    world.exchange(1, 2, 0)
    found = RankMonitor(tmp_path, 0, 3, world.ranks[0]).comparison((), final=True)
    assert found is not None
    assert (found.absent, found.rank, found.name) == ((), 2, "encoder")


def test_the_last_message_has_all_steps_that_are_kept() -> None:
    """Messages that rank 0 has missed, and steps beyond those of one message, are compared at the end."""
    world = World(3)
    for rank in (1, 2):
        for first in (1, 61, 121):  # rank 0 reads none of the first two messages
            world.train(rank, range(first, first + 60), 80 if rank == 2 else 60)
            world.exchange(rank, closing=first == 121)
    world.train(0, range(1, 181))
    world.exchange(0)
    world.exchange(0)
    records = world.ranks[0].records()
    assert all(records[rank].steps.tolist() == list(range(1, 181)) for rank in range(3))
    found = RankMonitor(None, 0, 3, world.ranks[0]).comparison((), final=True)
    assert found is not None
    assert (found.steps, found.rank, found.name) == (180, 2, "encoder")
    assert [state.status for state in world.ranks[0].states()] == ["closed", "closed"]


def test_the_messages_of_a_rank_that_was_started_again_replace_those_before() -> None:
    """Its launcher's store has outlived the first start, which sent nine messages and closed."""
    table = RankTable(2, is_running=lambda sender: True)
    record = OwnWork(32)
    for step in range(1, 21):
        record.add(make_step(step))
    first = Message(Sender(1, 77, 5), 9, 1.0, True, record.record())
    again = Message(Sender(1, 78, 5), 1, 1.0, False, record.record({1, 2, 3}))
    assert table.add(first, 1.0)
    assert table.add(again, 2.0)
    assert not table.add(again, 3.0)
    assert table.records()[1].steps.tolist() == [1, 2, 3]
    assert [(state.status, state.step) for state in table.states(3.0, 1.0)] == [("alive", 3)]


def test_a_rank_without_steps_closes() -> None:
    """Its last message is empty, and rank 0 knows that it has ended."""
    world = World(2)
    world.exchange(1, closing=True)
    world.exchange(0)
    assert [state.status for state in world.ranks[0].states()] == ["closed"]
    assert not len(world.ranks[0].records()[1].steps)


def test_ranks_are_compared_in_the_background() -> None:
    """The training thread only takes the last comparison."""
    world = World(2)
    monitor = RankMonitor(None, 0, 2, world.ranks[0])
    for second in range(1, 8):
        for rank in range(2):
            world.train(rank, range(10 * second, 10 * second + 9), 60 + 20 * rank)
        world.exchange(1, 0)
        if world.now < FIRST_COMPARISON_S:
            assert monitor.comparison((), final=False) is None
    found = monitor.comparison((), final=False)
    assert found is not None
    assert found.rank == 1
    assert found.steps >= MIN_COMMON_STEPS


def test_long_steps_are_compared_as_soon_as_there_are_enough() -> None:
    """A first comparison that lacks steps is repeated soon: a run of half a minute would end without one."""
    world = World(2)
    for second in range(12):
        for rank in range(2):
            world.train(rank, range(2 * second, 2 * second + 2), 60 + 20 * rank)
        world.exchange(1, 0)
    found = world.ranks[0].comparison
    assert found is not None
    assert (found.missing, found.rank) == (None, 1)


def test_every_rank_gets_the_lowest_rate_that_one_affords() -> None:
    """A rank that is late no longer counts."""
    world = World(3)
    for rates, rate in zip(world.rates, (0.5, 0.125, 1.0), strict=True):
        rates.affordable_rate = rate
    world.exchange(1, 2, 0)
    world.exchange()
    assert [rates.agreed_rate for rates in world.rates] == [0.125, 0.125, 0.125]
    for _ in range(6):
        world.exchange(2, 0)
    world.exchange(2)
    assert world.rates[2].agreed_rate == 0.5


def test_a_message_has_a_largest_size() -> None:
    """However many steps there are since the last one."""
    world = World(2)
    world.train(1, range(1, 500))
    world.exchange(1)
    assert world.board.put_bytes < 5_000


def test_messages_add_up_to_more_steps() -> None:
    """Rank 0 keeps the last ones of each rank; a step that comes again replaces itself."""
    world = World(2)
    for second in range(4):
        for rank in range(2):
            world.train(rank, range(20 * second + 1, 20 * second + 21))
        world.exchange(1, 0, 0)
    records = world.ranks[0].records()
    assert records[1].steps.tolist() == list(range(1, 81))
    assert {len(times) for times in records[1].rows.values()} == {80}


def test_steps_that_are_added_meanwhile_end_no_exchange() -> None:
    """The training thread may add a step while the exchange's thread copies those before."""
    work = OwnWork(8)

    class Frames(deque[Any]):
        """Changes while it is copied the first time."""

        def __iter__(self) -> Iterator[Any]:
            if len(self) == 1:
                work.add(make_step(2))
                raise RuntimeError("deque mutated during iteration")
            return super().__iter__()

    work._frames = Frames(maxlen=8)
    work.add(make_step(1))
    assert work.record().steps.tolist() == [1, 2]


def test_rows_of_earlier_messages_keep_their_names() -> None:
    """A later message has other rows, and names these alone."""
    world = World(2)
    for steps, name in ((range(1, 21), "decoder"), (range(21, 41), "encoder")):
        for step in steps:
            world.ranks[1].work.add(make_step(step, name=name))
        world.exchange(1, 0)
    rows = world.ranks[0].records()[1].rows
    assert rows["decoder", Phase.BACKWARD][:20] == pytest.approx(60 * MS, rel=1e-4)
    assert rows["encoder", Phase.BACKWARD][20:] == pytest.approx(60 * MS, rel=1e-4)


def test_rows_beyond_those_of_a_message_accuse_no_rank() -> None:
    """A model of 130 modules on equal ranks: a message has 64 rows, rank 0 has all of its own."""
    spans = [Span("Model", "", Phase.FORWARD, None, 0, 100 * MS)]
    spans += [Span(f"layer{at}", f"layer{at}", Phase.FORWARD, 0, at * MS, MS) for at in range(70)]
    spans += [Span("experts", "experts", Phase.FORWARD, 0, 70 * MS, 20 * MS)]
    spans += [
        Span(f"experts/{at}", f"experts.{at}", Phase.FORWARD, 71, 70 * MS + at * MS // 4, MS // 4) for at in range(60)
    ]
    world = World(4)
    for exchange in world.ranks:
        for step in range(1, 31):
            exchange.work.add(make_frame(spans, step=step, duration_ns=110 * MS))
    world.exchange(1, 2, 3, 0)
    found = RankMonitor(None, 0, 4, world.ranks[0]).comparison((), final=True)
    assert found is not None
    assert (found.missing, found.slow) == (None, ())
    for record in world.ranks[0].records().values():
        assert sum(times[0] for times in record.rows.values()) == pytest.approx(110 * MS, rel=1e-4)


def test_ranks_with_other_targets_are_merged_by_name() -> None:
    """A module that one rank does not name is 0 there, and does not shift another row."""
    world = World(2)
    world.train(0, range(1, 21))
    for step in range(1, 21):
        world.ranks[1].work.add(make_step(step, name="decoder" if step > 10 else "encoder"))
    world.exchange(1, 0)
    rows = world.ranks[0].records()[1].rows
    assert rows["encoder", Phase.BACKWARD][:10] == pytest.approx(60 * MS, rel=1e-4)
    assert not rows["encoder", Phase.BACKWARD][10:].any()
    assert rows["decoder", Phase.BACKWARD][10:] == pytest.approx(60 * MS, rel=1e-4)


def test_a_rank_that_never_came_is_missing_and_delays_nobody() -> None:
    """The others are exchanged; rank 0 asks for no key that is not there."""
    world = World(3)
    world.exchange(1, 0)
    assert [(state.rank, state.status) for state in world.ranks[0].states()] == [(1, "alive"), (2, "missing")]
    world.exchange(2, 0)
    assert [state.status for state in world.ranks[0].states()] == ["alive", "alive"]


def test_a_rank_that_sends_nothing_any_more_is_late() -> None:
    """Its last step is known; it is late no longer when it sends again."""
    world = World(3)
    world.train(1, range(1, 8))
    world.exchange(1, 2, 0)
    for _ in range(4):
        world.exchange(2, 0)
    late, alive = world.ranks[0].states()
    assert (late.status, late.step, alive.status) == ("late", 7, "alive")
    world.exchange(1, 2, 0)
    assert world.ranks[0].states()[0].status == "alive"


def test_a_rank_whose_process_is_gone_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host of rank 0 this is known at once."""
    world = World(2)
    world.exchange(1, 0)

    def kill(pid: int, number: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    assert world.ranks[0].states()[0].status == "dead"


def test_a_rank_that_has_closed_is_neither_late_nor_dead() -> None:
    """Its last message is marked."""
    world = World(2)
    world.exchange(1, closing=True)
    world.exchange(0)
    world.now += 1_000
    assert world.ranks[0].states()[0].status == "closed"


def test_the_time_between_messages_grows() -> None:
    """Short runs are compared as well; on a board that keeps every message, they become rare."""
    world = World(2)
    intervals = []
    for _ in range(FIRST_MESSAGES + 1):
        intervals.append(world.ranks[1].interval_s)
        world.exchange(1)
    assert intervals == [1.0] * FIRST_MESSAGES + [INTERVAL_S]
    world.board.grows = True
    assert world.ranks[1].interval_s == 2.0 ** (FIRST_MESSAGES + 1)


def test_an_exchange_without_a_process_group_does_nothing() -> None:
    """Until there is one."""
    boards: list[Board | None] = [None, None, Board()]
    exchange = Exchange(
        RankPlace(1, 2), Rates(), lambda session: boards.pop(0), lambda records: compare_known(records, 2)
    )
    exchange.exchange()
    assert not exchange.connected
    exchange.exchange()
    exchange.exchange()
    assert exchange.connected
    assert exchange.messages == 1


def test_a_failure_of_the_store_ends_the_exchange() -> None:
    """And is kept for a note; nothing is raised."""

    def fail(session: int) -> Board:
        raise RuntimeError("connection reset")

    exchange = Exchange(RankPlace(1, 2), Rates(), fail, lambda records: compare_known(records, 2))
    exchange._stop.wait = lambda timeout: False  # type: ignore[method-assign, assignment]
    exchange.start()
    exchange.finish()
    assert exchange.failure == "RuntimeError: connection reset"


def test_a_forked_process_touches_nothing_of_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread does not exist there, and a lock may be held for ever."""
    world = World(2)
    world.exchange(1, 0)
    before = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: before + 1)
    world.ranks[1].finish()
    assert not world.ranks[1]._stop.is_set()


def test_ranks_learn_the_folder_of_rank_0() -> None:
    """Where it has announced one."""
    world = World(2)
    world.ranks[0].folder = "runs/a"
    world.exchange(1, 0)
    assert world.ranks[1].folder is None
    world.exchange(1)
    assert world.ranks[1].folder == "runs/a"
