"""Throughput and the time to the end, from logged scalars or the batches of a loader."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from autoprof.base.summary import Summary
from autoprof.probes.metrics.throughput import ADVICE, FETCHED, LOGGED, SEVERAL_LOADERS, UNKNOWN
from autoprof.reports.summary_text import render_summary
from autoprof.session import builder
from autoprof.session.account import Account
from autoprof.session.controller import Controller
from autoprof.session.pipeline import Pipeline
from autoprof.testing import FakeClock, ListSink, open_session

STEP_NS = 1_000_000_000
CONFIG = {"sinks": {}, "step": "manual", "sample": {"warmup": 1, "budget": None}, "flops": "off"}


def trained(model: nn.Module, *steps: Any, sinks: Any = (), **logged: Any) -> Summary:
    """Train one step of a second for each of ``steps``, which makes the model's calls; return the run's summary."""
    clock = FakeClock()
    with open_session(model, CONFIG, clock=clock, sinks=sinks) as session:
        for step in steps:
            step(model)
            session.log(**logged)
            clock.advance(STEP_NS)
            session.step()
    return session.summary()


def batch(size: int) -> Any:
    """Return a step that calls the model once on a batch of this size."""
    return lambda model: model(torch.ones(size, 4)).sum().backward()


@pytest.mark.parametrize("unit", ["samples", "tokens", "frames"])
def test_what_is_logged_counts_and_not_what_is_fetched(unit: str) -> None:
    """Samples, tokens or frames."""
    step = fetching(DataLoader(samples_of(64, 4), 8), train_once)
    summary = trained(nn.Linear(4, 4), *[step] * 4, **{unit: 100})
    assert (summary.throughput, summary.throughput_unit) == (100.0, unit)
    assert summary.progress is not None
    assert summary.progress.source == LOGGED


def fetching(loader: Any, use: Any, *, fetches: int = 1) -> Any:
    """Return a step that fetches batches of a loader, over and over, and uses each."""
    batches: list[Iterator[Any]] = []

    def step(model: nn.Module) -> None:
        for _ in range(fetches):
            batch = next(batches[0], None) if batches else None
            if batch is None:
                batches[:] = [iter(loader)]
                batch = next(batches[0])
            use(model, batch)

    return step


def samples_of(count: int, *shape: int) -> TensorDataset:
    """Return a data set of so many samples of this shape."""
    return TensorDataset(torch.ones(count, *shape))


def unknown(summary: Summary) -> str:
    """Return the reason why there is no throughput."""
    assert summary.throughput is None
    assert summary.progress is not None
    return summary.progress.no_throughput.split(";")[0]


def train_once(model: nn.Module, batch: Any) -> None:
    """Run one forward and one backward on a batch."""
    model(batch[0]).sum().backward()


def test_the_batches_of_a_loader_count() -> None:
    """Two micro-batches of eight in each step; the source is named."""
    step = fetching(DataLoader(samples_of(64, 4), 8), train_once, fetches=2)
    summary = trained(nn.Linear(4, 4), *[step] * 4)
    assert summary.throughput == 16.0
    assert summary.progress is not None
    assert summary.progress.source == FETCHED


class Stream(IterableDataset[Any]):
    """A data set without a length."""

    def __iter__(self) -> Iterator[list[Tensor]]:
        return iter([[torch.ones(4)]] * 100)


def first_six(items: list[Any]) -> list[Tensor]:
    """Drop broken samples."""
    return [torch.stack([one[0] for one in items[:6]])]


def buckets(kind: Any) -> DataLoader[Any]:
    """Return a loader of two and six samples in turn: a batch sampler without a batch size says which."""
    return DataLoader(samples_of(64, 4), batch_sampler=[kind(range(2)), kind(range(6))] * 4)


class Bulk(TensorDataset):
    """A data set that reads all samples of a batch at once."""

    @classmethod
    def loader(cls) -> DataLoader[Any]:
        """Return a loader that passes it the indices of five samples."""
        one = cls(torch.ones(64, 4))
        return DataLoader(one, batch_size=None, sampler=BatchSampler(SequentialSampler(one), 5, drop_last=True))


def sequence_first(items: list[Any]) -> list[Tensor]:
    """Put the steps of the sequences before the samples."""
    return [torch.stack([one[0] for one in items], 1)]


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        pytest.param(lambda: DataLoader(samples_of(10, 4), 4), 20 / 6, id="last batch of an epoch"),
        pytest.param(lambda: DataLoader(samples_of(10, 4), 4, drop_last=True), 4.0, id="last batch dropped"),
        pytest.param(lambda: DataLoader(samples_of(64, 4), 8, collate_fn=first_six), 6.0, id="filtered"),
        pytest.param(lambda: buckets(list), 4.0, id="lists of indices"),
        pytest.param(lambda: buckets(lambda indices: torch.tensor([*indices])), 4.0, id="tensors of indices"),
        pytest.param(Bulk.loader, 5.0, id="data set that reads whole batches"),
        pytest.param(lambda: DataLoader(Stream(), 8), 8.0, id="iterable"),
        pytest.param(lambda: DataLoader(samples_of(64, 50, 4), 8, collate_fn=sequence_first), 8.0, id="sequences"),
    ],
)
def test_a_step_has_the_samples_that_its_loader_delivers(loader: Any, samples: float) -> None:
    """By the size of the batch, where the tensors confirm it."""
    summary = trained(nn.Sequential(nn.Linear(4, 4)), *[fetching(loader(), train_once)] * 7)
    assert summary.throughput == pytest.approx(samples)


def test_a_loader_of_single_items_whose_data_set_makes_batches_does_not_say_their_size() -> None:
    """As in recommenders: its batch size is 1, and the tensors have the samples that the data set put together."""
    loader = DataLoader(samples_of(64, 16, 5), 1, collate_fn=lambda items: [items[0][0], torch.ones(16, 1)])
    assert unknown(trained(nn.Linear(5, 5), *[fetching(loader, train_once)] * 4)) == UNKNOWN


@pytest.mark.parametrize("sizes", [(4, 8, 16, 32), (32, 16, 8, 4)])
def test_a_new_loader_with_another_batch_size_counts_from_its_first_batch(sizes: tuple[int, ...]) -> None:
    """As the loader before it: each step has the samples of its own batch."""
    sink, sampled = ListSink(), [size for size in sizes for _ in range(5)]
    loaders = [fetching(DataLoader(samples_of(5 * size, 4), size), train_once) for size in sizes]
    steps = [loader for loader in loaders for _ in range(5)]
    assert trained(nn.Linear(4, 4), *steps, sinks=[sink]).throughput == sum(sampled[1:]) / len(sampled[1:])
    assert [frame.scalars["samples"] for frame in sink.frames] == sampled


def test_batches_that_worker_processes_hold_already_are_those_of_their_own_indices() -> None:
    """A batch whose indices were drawn before the session began is unknown: the workers had two of them."""
    sink, sizes = ListSink(), [3, 1, 4, 1, 5, 2, 6]
    loader = DataLoader(samples_of(8, 4), batch_sampler=[list(range(size)) for size in sizes], num_workers=1)
    batches = iter(loader)
    trained(nn.Linear(4, 4), *[lambda model: train_once(model, next(batches))] * 7, sinks=[sink])
    assert [frame.scalars.get("samples") for frame in sink.frames] == [None, None, *sizes[2:]]


def test_steps_of_unknown_samples_do_not_count() -> None:
    """Their time is left out with them, and no step has a number that is not its own."""
    sink = ListSink()
    known = fetching(DataLoader(samples_of(64, 4), 8), train_once)
    lost = fetching(DataLoader(samples_of(64, 16, 4), batch_size=None), train_once)
    summary = trained(nn.Linear(4, 4), *[known] * 5, *[lost] * 5, *[known] * 5, sinks=[sink])
    assert summary.throughput == 8.0
    assert [frame.scalars.get("samples") for frame in sink.frames] == [8.0] * 5 + [None] * 5 + [8.0] * 5


def test_loaders_that_feed_steps_in_turn_count_both() -> None:
    """As in a program with two tasks."""
    one, other = (fetching(DataLoader(samples_of(64, 4), size), train_once) for size in (8, 4))
    assert trained(nn.Linear(4, 4), one, *[other, one] * 4).throughput == 6.0


def logged_at_times(steps: int, every: int, use: Any, config: Any = None, **logged: Any) -> Summary:
    """Train so many steps of a second, and log scalars in each ``every``-th; return the summary."""
    clock, model = FakeClock(), nn.Linear(4, 4)
    with open_session(model, {**CONFIG, **(config or {})}, clock=clock) as session:
        for number in range(1, steps + 1):
            use(model)
            if number % every == 0:
                session.log(**logged)
            clock.advance(STEP_NS)
            session.step()
    return session.summary()


def eight_fetched() -> Any:
    """Return a step that trains on eight samples of a loader."""
    return fetching(DataLoader(samples_of(640, 4), 8), train_once)


@pytest.mark.parametrize("logged", [80, 8])
def test_samples_logged_every_tenth_step_are_those_of_ten_steps(logged: int) -> None:
    """Or those of one, where the loader shows that they are."""
    assert logged_at_times(61, 10, eight_fetched(), samples=logged).throughput == pytest.approx(8.0)


def test_two_loaders_in_every_step_give_no_throughput() -> None:
    """Which of their samples are meant is unknown; a loader that is read once is no rival."""
    labelled, other = DataLoader(samples_of(64, 4), 8), DataLoader(samples_of(64, 4), 4)
    first, second = fetching(labelled, train_once), fetching(other, lambda model, batch: None)

    def both(model: nn.Module) -> None:
        first(model)
        second(model)

    assert unknown(trained(nn.Linear(4, 4), *[both] * 6)) == SEVERAL_LOADERS
    assert trained(nn.Linear(4, 4), both, *[first] * 6).throughput == 8.0


class Gaps(Controller):
    """A controller that records four steps and skips sixteen."""

    def __init__(self) -> None:
        super().__init__(Account())

    def close(self, cost_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int | None = None) -> None:
        pass

    def next_recorded(self, step: int) -> int:
        return step if (step - 1) % 20 < 4 else step + 20 - (step - 1) % 20


class FakeTime(ListSink):
    """The host time of a session and its clock, and a sink that takes a time to write each frame."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, write_ns: int = 0) -> None:
        super().__init__()
        self.clock, self._write_ns = FakeClock(), write_ns
        monkeypatch.setattr(builder, "Pipeline", partial(Pipeline, now_ns=lambda: self.clock.now_ns))

    def write(self, frame: Any) -> None:
        self.clock.advance(self._write_ns)
        super().write(frame)


def sampled(
    monkeypatch: pytest.MonkeyPatch, step: Any, log: Any = None, steps: int = 400, write_ns: int = 0
) -> tuple[float, Summary]:
    """Train with four recorded steps of twenty; return the seconds a step, and the summary."""
    time = FakeTime(monkeypatch, write_ns)
    monkeypatch.setattr(builder, "Controller", lambda *_args: Gaps())
    clock, model, draw = time.clock, nn.Linear(4, 4), random.Random(3)
    sample = {"warmup": 1, "every": 1}
    with open_session(model, {**CONFIG, "sample": sample}, clock=clock, sinks=[time]) as session:
        for number in range(steps):
            step(model)
            if log is not None:
                log(session, number)
            clock.advance(STEP_NS if number % 5 else STEP_NS + draw.randrange(STEP_NS // 10))
            session.step()
        lasted = clock.now_ns
    return lasted / steps / STEP_NS, session.summary()


def test_what_is_logged_in_unsampled_steps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step has another number of samples; all of them are known."""
    counts = [draw % 7 for draw in range(400)]
    seconds, summary = sampled(monkeypatch, batch(8), lambda session, number: session.log(samples=counts[number]))
    assert summary.unsampled_steps > 300
    assert summary.throughput == pytest.approx(sum(counts) / 400 / seconds, rel=0.01)


def test_what_is_fetched_in_unsampled_steps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the short batches at the ends of epochs."""
    loader = DataLoader(samples_of(10, 4), 4)
    seconds, summary = sampled(monkeypatch, fetching(loader, train_once))
    assert summary.throughput == pytest.approx(10 / 3 / seconds, rel=0.01)


@pytest.mark.parametrize("log", [None, lambda session, number: session.log(samples=8)], ids=["fetched", "logged"])
def test_the_time_of_autoprofs_own_work_counts(monkeypatch: pytest.MonkeyPatch, log: Any) -> None:
    """Writing a frame takes two steps' time, in the step after it or where a gap begins: the training waits for it."""
    step = fetching(DataLoader(samples_of(640, 4), 8), train_once)
    seconds, summary = sampled(monkeypatch, step, log, steps=1200, write_ns=2 * STEP_NS)
    assert summary.throughput == pytest.approx(8 / seconds, rel=0.01)
    assert summary.run_ns / summary.run_steps / STEP_NS == pytest.approx(seconds, rel=0.01)
    assert summary.unsampled_ns / summary.unsampled_steps / STEP_NS == pytest.approx(1, rel=0.02)


def test_the_report_says_why_there_is_no_throughput() -> None:
    """And what would give one."""
    text = " ".join(" ".join(render_summary(trained(nn.Linear(4, 4), *[batch(8)] * 4))).split())
    assert f"throughput unknown: {UNKNOWN}; {ADVICE}" in text


def test_the_time_to_the_end_follows_from_the_number_of_steps() -> None:
    """``session.log(total_steps=…)`` says it; it is no scalar of a step. A long step counts as others do."""
    sink, clock = ListSink(), FakeClock()
    model = nn.Linear(4, 4)
    with open_session(model, CONFIG, clock=clock, sinks=[sink]) as session:
        for number in range(5):
            if not number:
                session.log(total_steps=100)
            batch(8)(model)
            clock.advance(STEP_NS if number < 4 else 5 * STEP_NS)
            session.step()
    pace = session.summary().progress
    assert pace is not None
    assert (pace.total_steps, pace.remaining_steps, pace.remaining_ns) == (100, 95, 95 * 2 * STEP_NS)
    assert all("total_steps" not in frame.scalars for frame in sink.frames)
