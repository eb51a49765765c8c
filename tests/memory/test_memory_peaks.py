"""Nested peaks from one running peak that is never reset: exact where it grew, else the highest level read."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from autoprof.base.frame import Span, StepFrame
from autoprof.base.storage.records import Frames
from autoprof.base.summary import Row, Summary
from autoprof.session import builder
from autoprof.session.account import Account
from autoprof.testing import FakeClock, ListSink, open_session
from tests.fake_memory import FakeAllocator
from tests.saved_records import write_records


class Work(nn.Module):
    """A module that takes ``keeps`` bytes until the step ends, and ``scratch`` for the length of its call."""

    def __init__(self, allocator: FakeAllocator, keeps: int, scratch: int = 0, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.allocator, self.keeps, self.scratch = allocator, keeps, scratch
        self.inner = inner
        self.kept: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.kept.append(self.allocator.allocate(self.keeps))
        if self.inner is not None:
            x = self.inner(x)
        block = self.allocator.allocate(self.scratch)
        self.allocator.free(block)
        return x * self.scale


def train(model: nn.Sequential, allocator: FakeAllocator, steps: int = 3) -> tuple[list[StepFrame], Summary]:
    sink = ListSink()
    config = {"targets": [{"match": ".+", "memory": True}], "sinks": {}, "sample": {"warmup": 0}}
    session = open_session(model, config, clock=FakeClock(tick_ns=1000), memory=allocator, sinks=[sink])
    for _ in range(steps):
        model(torch.ones(1)).sum().backward()
        for module in model.modules():
            if isinstance(module, Work):
                while module.kept:
                    allocator.free(module.kept.pop())
        session.step()
    session.close()
    return sink.frames, session.summary()


def spans_of(frame: StepFrame) -> dict[str, Span]:
    return {span.name: span for span in frame.spans if span.memory_start_bytes is not None}


def rows_of(summary: Summary) -> dict[str, Row]:
    return {row.name: row for row in summary.rows if row.memory_growth_bytes is not None}


def test_the_first_to_reach_a_height_has_an_exact_peak() -> None:
    """The running peak grew within it."""
    allocator = FakeAllocator(1 << 20, base_bytes=100)
    frames, _ = train(nn.Sequential(Work(allocator, 10, scratch=500), Work(allocator, 20, scratch=50)), allocator)
    first = spans_of(frames[0])
    assert first["0"].memory_peak_bytes == 610


def test_one_in_the_shadow_of_a_peak_has_the_highest_level_of_its_ends() -> None:
    """Its peak is unknown; it reached the levels at its ends."""
    allocator = FakeAllocator(1 << 20, base_bytes=100)
    frames, summary = train(nn.Sequential(Work(allocator, 10, scratch=500), Work(allocator, 20, scratch=50)), allocator)
    second = spans_of(frames[0])["1"]
    assert second.memory_peak_bytes == rows_of(summary)["1"].memory_peak_bytes == 130  # its true peak is 180


def test_later_steps_do_not_forget_an_exact_peak() -> None:
    """The running peak grows once; the row keeps it, though it tells nothing in later steps."""
    allocator = FakeAllocator(1 << 20, base_bytes=100)
    frames, summary = train(nn.Sequential(Work(allocator, 10, scratch=500)), allocator)
    assert spans_of(frames[2])["0"].memory_peak_bytes == 110
    row = rows_of(summary)["0"]
    assert (row.memory_peak_bytes, row.memory_growth_bytes) == (610, 10)


def test_a_span_reached_what_those_in_it_reached() -> None:
    """The inner one's reading counts for the outer one, whose own ends lie lower."""
    allocator = FakeAllocator(1 << 20, base_bytes=1000)
    allocator.free(allocator.allocate(5000))  # a running peak that stands above all
    inner = Work(allocator, 300)
    outer = Work(allocator, 10, inner=inner)
    spans = spans_of(train(nn.Sequential(outer), allocator, steps=1)[0][0])
    assert spans["0/inner"].memory_peak_bytes == 1310
    assert spans["0"].memory_peak_bytes == 1310


def test_a_failed_allocation_of_an_unsampled_step_is_counted() -> None:
    """No recorded step follows it, whose readings would have it."""
    allocator = FakeAllocator(1 << 20)
    model = nn.Sequential(Work(allocator, 10))
    config = {"sinks": {}, "sample": {"every": 64, "warmup": 0, "budget": None}}
    with open_session(model, config, clock=FakeClock(tick_ns=1000), memory=allocator) as session:
        for _ in range(3):
            model(torch.ones(1)).sum().backward()
            session.step()
        with pytest.raises(MemoryError):
            allocator.allocate(1 << 21)
    assert session.summary().memory["ooms"] == 1


def test_the_users_counters_read_the_same_with_and_without() -> None:
    """Nothing of ours resets anything."""
    read = []
    for on in (True, False):
        allocator = FakeAllocator(1 << 20, base_bytes=100)
        model = nn.Sequential(Work(allocator, 10, scratch=500), Work(allocator, 20))
        if on:
            train(model, allocator)
        else:
            for _ in range(3):
                model(torch.ones(1))
                for module in model:
                    allocator.free(module.kept.pop())
        read.append((allocator.allocated, allocator.peak, allocator.reserved))
    assert read[0] == read[1]


def test_the_columns_go_to_a_record_and_back(tmp_path: Path) -> None:
    """Every span is as before."""
    allocator = FakeAllocator(1 << 20, base_bytes=100)
    (frame,), _ = train(nn.Sequential(Work(allocator, 10, scratch=500)), allocator, steps=1)
    (back,) = Frames(write_records(tmp_path, [frame]))
    assert back.spans == frame.spans
    assert any(span.memory_peak_bytes is not None for span in frame.spans)


def test_warm_up_counts_for_peaks_and_for_nothing_else() -> None:
    """The running peak grows in the first steps, and only then tells."""
    allocator = FakeAllocator(1 << 20, base_bytes=100)
    sink = ListSink()
    work = Work(allocator, 10, scratch=500)
    config: dict[str, Any] = {"targets": [{"match": ".+", "memory": True}], "sinks": {}, "sample": {"warmup": 1}}
    session = open_session(nn.Sequential(work), config, clock=FakeClock(tick_ns=1), memory=allocator, sinks=[sink])
    for _ in range(2):
        work(torch.ones(1)).sum().backward()
        allocator.free(work.kept.pop())
        session.step()
    session.close()
    (row,) = rows_of(session.summary()).values()
    assert (row.steps, row.memory_peak_bytes) == (1, 610)


def test_what_readings_cost_is_part_of_the_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading takes much longer than a mark: one of 61 is timed, and stands for all of them."""
    allocator = FakeAllocator(1 << 20, base_bytes=100)
    now = iter(range(0, 10**9, 30_000))
    monkeypatch.setattr(builder, "Account", lambda *_clock: Account(lambda: next(now)))
    frames, _ = train(nn.Sequential(*[Work(allocator, 10) for _ in range(31)]), allocator, steps=1)
    assert frames[0].overhead_ns >= 61 * 30_000


QUIET = {"flops": "off", "monitor": "off", "flight_recorder": {"mode": "off"}}
"""Without the parts that take longer than a step of these nests."""
Tree = st.recursive(
    st.tuples(st.integers(0, 50), st.integers(0, 500), st.just(())),
    lambda inner: st.tuples(st.integers(0, 50), st.integers(0, 500), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=8,
)


class Nest(nn.Module):
    """Modules inside modules, each of which knows its true peak."""

    def __init__(self, allocator: FakeAllocator, shape: tuple[int, int, tuple[Any, ...]]) -> None:
        super().__init__()
        self.keeps, self.scratch, inner = shape
        self.allocator = allocator
        self.inner = nn.ModuleList(Nest(allocator, one) for one in inner)
        self.kept: list[int] = []
        self.true_peak = 0

    def forward(self, x: Tensor) -> Tensor:
        level = self.allocator.allocated
        self.true_peak = level
        block = self.allocator.allocate(self.scratch)
        self.true_peak = max(self.true_peak, self.allocator.allocated)
        self.allocator.free(block)
        self.kept.append(self.allocator.allocate(self.keeps))
        for one in self.inner:
            x = one(x)
            self.true_peak = max(self.true_peak, one.true_peak)
        self.true_peak = max(self.true_peak, self.allocator.allocated)
        return x


@given(shape=Tree, before=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_true_peak_is_never_below_the_known_one(shape: tuple[int, int, tuple[Any, ...]], before: int) -> None:
    """Of every call of every nest, whatever the running peak was before."""
    allocator = FakeAllocator(1 << 30, base_bytes=10)
    allocator.free(allocator.allocate(before))
    model, sink = Nest(allocator, shape), ListSink()
    config = {"targets": [{"match": ".*", "memory": True}], "sinks": {}, "sample": {"warmup": 0}, **QUIET}
    session = open_session(model, config, clock=FakeClock(tick_ns=1), memory=allocator, sinks=[sink])
    for _ in range(2):
        model(torch.ones(1))
        session.step()
    session.close()
    modules = {name or "": module for name, module in model.named_modules() if isinstance(module, Nest)}
    checked = 0
    for span in sink.frames[-1].spans:
        module = modules.get(span.fqn or "")
        if module is not None and span.memory_peak_bytes is not None:
            assert span.memory_peak_bytes <= module.true_peak
            checked += 1
    assert checked == len(modules)
