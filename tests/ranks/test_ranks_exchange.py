"""The exchange between ranks over a store: no rank waits for another, and one that is not there is named."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore
from waiting import wait_until

from autoprof.base.frame import Phase, Span
from autoprof.ranks import MIN_COMMON_STEPS, Exchange, OwnWork, RankMonitor, RankPlace
from autoprof.ranks.message import Message
from autoprof.ranks.table import RankTable
from autoprof.testing import make_frame
from tests.accounts import unlimited
from tests.saved_records import write_records

MS = 1_000_000


@dataclass
class Rates:
    """The rates of a sampler."""

    affordable_rate: float = 1.0
    agreed_rate: float = 1.0


@dataclass
class World:
    """The ranks of a run, their store and their clock."""

    size: int
    store: Any = field(default_factory=HashStore)
    now: float = 0.0
    ranks: list[Exchange] = field(default_factory=list)
    rates: list[Rates] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rates = [Rates() for _ in range(self.size)]
        for rank, rates in enumerate(self.rates):
            place = RankPlace(rank, self.size)
            self.ranks.append(Exchange(place, rates, lambda session: self.store, unlimited(), clock=lambda: self.now))

    def train(self, rank: int, steps: range, backward_ms: float = 60, name: str = "encoder") -> None:
        """Add recorded steps to a rank."""
        for step in steps:
            self.ranks[rank].work.add(make_step(step, backward_ms, name))

    def exchange(self, *ranks: int, closing: bool = False) -> None:
        """Let these ranks send, or rank 0 read; a second passes after it."""
        for rank in ranks or range(self.size):
            self.ranks[rank].exchange(closing=closing)
        self.now += 1.0

    def status(self) -> list[str]:
        """Return what rank 0 knows of the others."""
        return [state.status for state in self.ranks[0].states()]

    def compare(self, run: Path | None = None) -> Any:
        """Return the last comparison of the run."""
        return RankMonitor(run, 0, self.size, self.ranks[0]).comparison(final=True)


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
    (slow,) = world.compare().slow
    assert (slow.rank, slow.name, slow.phase) == (2, "encoder", Phase.BACKWARD)
    assert slow.excess_ns.middle == pytest.approx(20 * MS, rel=1e-3)
    assert RankMonitor(None, 1, 3, world.ranks[1]).comparison(final=True) is None


def test_a_rank_whose_last_message_is_late_is_compared_by_its_records(tmp_path: Path) -> None:
    """Its message of the first steps has none in common with those of the others."""
    world = World(3)
    for rank in range(3):
        frames = [make_step(step, 80 if rank == 2 else 60) for step in range(1, 41)]
        for frame in frames if rank != 2 else frames[:5]:
            world.ranks[rank].work.add(frame)
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        write_records(folder, frames)
    world.exchange(1, 2, 0)
    found = world.compare(tmp_path)
    assert (found.absent, found.slow[0].rank, found.slow[0].name) == ((), 2, "encoder")


def test_ranks_without_messages_are_compared_once_the_others_have_written_their_records(tmp_path: Path) -> None:
    """Rank 0 knows its own steps, and waits for those of ranks that have a folder beside its own."""
    world = World(2)
    world.train(0, range(1, 41), 80)
    for rank in range(2):
        (tmp_path / f"rank{rank}").mkdir()
        (tmp_path / f"rank{rank}" / "steps.jsonl").touch()  # as long as its sink has it open
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 0.5 and not (tmp_path / "rank1" / "steps.jsonl").stat().st_size:
            write_records(tmp_path / "rank1", [make_step(step) for step in range(1, 41)])

    monitor = RankMonitor(tmp_path, 0, 2, world.ranks[0], clock=lambda: now[0], sleep=wait)
    found = monitor.comparison(final=True, waits=True)
    assert found is not None
    assert (found.steps, found.slow[0].rank, found.slow[0].name) == (40, 0, "encoder")


def test_a_rank_that_never_writes_its_records_is_waited_for_briefly(tmp_path: Path) -> None:
    """And one that has no folder here, as on another machine, is not waited for."""
    for folders, waited in ((2, True), (1, False)):
        world = World(2)
        world.train(0, range(1, 41))
        for rank in range(folders):
            (tmp_path / str(folders) / f"rank{rank}").mkdir(parents=True)
        slept: list[float] = []
        run = tmp_path / str(folders)
        monitor = RankMonitor(run, 0, 2, world.ranks[0], clock=lambda s=slept: sum(s), sleep=slept.append)
        monitor.comparison(final=True, waits=True)
        assert (sum(slept) > 0) is waited
        assert sum(slept) < 3


def test_the_last_message_has_all_steps_that_are_kept() -> None:
    """Messages that rank 0 has missed, and steps beyond those of one message, are compared at the end."""
    world = World(3)
    for rank in (1, 2):
        for first in (1, 61, 121):  # rank 0 reads none of the first two messages
            world.train(rank, range(first, first + 60), 80 if rank == 2 else 60)
            world.exchange(rank, closing=first == 121)
    world.train(0, range(1, 181))
    world.exchange(0)
    found = world.compare()
    assert (found.steps, found.slow[0].rank, found.slow[0].name) == (180, 2, "encoder")
    assert world.status() == ["closed", "closed"]


def test_messages_add_up_to_more_steps() -> None:
    """Rank 0 keeps the last ones of each rank; a message read twice counts once; each row keeps its name."""
    world = World(2)
    for first, name in ((1, "decoder"), (21, "encoder"), (41, "encoder")):
        world.train(1, range(first, first + 20), name=name)
        world.exchange(1, 0, 0)
    record = world.ranks[0].records()[1]
    assert record.steps.tolist() == list(range(1, 61))
    decoder, encoder = (record.rows[name, Phase.BACKWARD] for name in ("decoder", "encoder"))
    assert decoder.tolist() == [60 * MS] * 20 + [0] * 40
    assert encoder.tolist() == [0] * 20 + [60 * MS] * 40


def test_the_messages_of_a_rank_that_was_started_again_replace_those_before() -> None:
    """Its launcher's store has outlived the first start, which sent nine messages and closed."""
    table = RankTable(2)
    record = OwnWork(32)
    for step in range(1, 21):
        record.add(make_step(step))
    table.add(Message(1, 77, 9, 1.0, True, record.record()), 1.0)
    table.add(Message(1, 78, 1, 1.0, False, record.record({1, 2, 3})), 2.0)
    assert table.records()[1].steps.tolist() == [1, 2, 3]
    assert [(state.status, state.step) for state in table.states(3.0, 1.0)] == [("alive", 3)]


def test_ranks_are_compared_in_the_background_as_soon_as_there_are_enough_steps() -> None:
    """The training thread only takes the last comparison; one that lacks steps is repeated soon."""
    world = World(2)
    monitor = RankMonitor(None, 0, 2, world.ranks[0])
    assert monitor.comparison(final=False) is None
    for second in range(12):
        for rank in range(2):
            world.train(rank, range(2 * second, 2 * second + 2), 60 + 20 * rank)
        world.exchange(1, 0)
    found = monitor.comparison(final=False)
    assert found is not None
    assert [one.rank for one in found.slow] == [1]
    assert found.steps >= MIN_COMMON_STEPS


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


def test_ranks_that_send_at_different_times_have_steps_in_common() -> None:
    """One sends after 100 steps, the other after 150: most of the steps in both messages are the same."""
    world = World(3)
    for rank, last in enumerate((150, 100, 150)):
        world.train(rank, range(1, last + 1))
    world.exchange(1, 2, 0)
    assert world.compare().steps >= 18


def test_a_message_has_a_largest_size() -> None:
    """However many steps there are since the last one."""
    world = World(2)
    world.train(1, range(1, 500))
    world.exchange(1)
    assert len(world.store.get("message/1")) < 5_000


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
    found = world.compare()
    assert (found.missing, found.slow) == (None, ())
    for record in world.ranks[0].records().values():
        assert sum(times[0] for times in record.rows.values()) == pytest.approx(110 * MS, rel=1e-4)


def test_a_rank_that_never_came_is_missing_and_delays_nobody() -> None:
    """The others are exchanged; rank 0 asks for no key that is not there."""
    world = World(3)
    world.exchange(1, 0)
    assert world.status() == ["alive", "missing"]
    world.exchange(2, 0)
    assert world.status() == ["alive", "alive"]


def test_a_rank_that_sends_nothing_any_more_is_late() -> None:
    """Its last step is known; it is late no longer when it sends again."""
    world = World(3)
    world.train(1, range(1, 8))
    world.exchange(1, 2, 0)
    for _ in range(4):
        world.exchange(2, 0)
    assert world.status() == ["late", "alive"]
    assert world.ranks[0].states()[0].step == 7
    world.exchange(1, 2, 0)
    assert world.status() == ["alive", "alive"]


def test_a_rank_that_has_closed_is_not_late() -> None:
    """Its last message is marked, though it has no steps."""
    world = World(2)
    world.exchange(1, closing=True)
    world.exchange(0)
    world.now += 1_000
    assert world.status() == ["closed"]
    assert not len(world.ranks[0].records()[1].steps)


def test_a_run_that_ends_at_once_has_sent_its_steps() -> None:
    """It is over before the thread looks for a process group for the first time."""
    world = World(2)
    world.train(1, range(1, 61))
    world.ranks[1].start()
    world.ranks[1].finish()
    world.exchange(0)
    assert world.status() == ["closed"]
    assert len(world.ranks[0].records()[1].steps) == 60


def test_an_exchange_without_a_process_group_does_nothing() -> None:
    """Until there is one."""
    stores: list[Any] = [None, HashStore()]
    exchange = Exchange(RankPlace(1, 2), Rates(), lambda session: stores.pop(0), unlimited())
    exchange.exchange()
    assert not exchange.connected
    exchange.exchange()
    exchange.exchange()
    assert exchange.connected
    assert exchange.messages == 2


def fail(session: int) -> Any:
    """Raise what a store raises whose server has gone."""
    raise RuntimeError("connection reset")


def test_a_failure_of_the_store_ends_the_exchange() -> None:
    """And is kept for a note; nothing is raised."""
    exchange = Exchange(RankPlace(1, 2), Rates(), fail, unlimited())
    exchange.start()
    wait_until(lambda: exchange.failure is not None, "the end of the exchange")
    exchange.finish()
    assert exchange.failure == "RuntimeError: connection reset"
