"""Too much, too long, and parts of our own that fail: bounded, counted, said; training goes on bit for bit."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attached import hooks_of, is_marked
from engine_laws import Watched, check_laws, everything, pass_on_each_step
from torch import nn

import autoprof
from autoprof import Phase
from autoprof.capture import recorder as recording
from autoprof.capture.hooks import autograd_hooks
from autoprof.testing import FakeClock, ListSink


def mlp() -> nn.Sequential:
    """Return the same model each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set how many marks of a step are kept."""

    def keep(marks: int) -> None:
        for module in (recording, autograd_hooks):
            monkeypatch.setattr(module, "MAX_MARKS", marks, raising=False)

    return keep


# One step that is too much.


def test_spans_beyond_the_limit_are_counted_and_those_kept_stay_true(room: Callable[[int], None]) -> None:
    """The limit falls inside a span: how long it and those around it went on is not known, and is not made up."""
    room(7)
    clock = FakeClock()
    with Watched(mlp(), clock=clock) as watched:
        with autoprof.span("whole"):
            for _ in range(10):
                with autoprof.span("tiny"):
                    clock.advance(100)
                clock.advance(1)
            clock.advance(5_000)
        watched.step()
        with autoprof.span("whole"), autoprof.span("tiny"):
            clock.advance(100)
        watched.step()
        summary = watched.session.summary()
    first, second = watched.sink.frames
    check_laws(first)
    assert first.dropped == 22 - 7
    assert first.duration_ns == 6_010
    assert [(span.name, span.host_ns) for span in first.spans] == [("whole", 302), *[("tiny", 100)] * 3]
    assert first.phase_ns()[Phase.OTHER] == 6_010 - 302
    assert [(span.name, span.host_ns) for span in second.spans] == [("whole", 100), ("tiny", 100)]
    assert second.dropped == 0
    assert summary.dropped == {"marks": 15}


def test_the_limit_may_fall_anywhere_in_a_step_and_the_account_closes(room: Callable[[int], None]) -> None:
    """Forward, backward, a pause, another thread's marks: for every limit up to the whole step."""
    for limit in range(1, 40):
        room(limit)
        model = mlp()
        with Watched(model) as watched:
            for _ in range(2):
                model(torch.ones(1, 2)).sum().backward()
                with watched.session.pause():
                    model(torch.ones(1, 2))
                watched.session.log(loss=1.0)
                with autoprof.span("mine"):
                    autoprof.log_timing("theirs", 1.0)
                watched.step()
        assert len(watched.sink.frames) == 2
        for frame in watched.sink.frames:
            check_laws(frame)
        assert watched.sink.summary is not None
        assert not [reason for reason in watched.sink.summary.skipped if "failures" in reason]


def test_a_step_that_never_ends_takes_bounded_memory_and_closes(room: Callable[[int], None]) -> None:
    """Forward and backward without an end of the step: past the limit nothing of ours grows."""
    room(200)
    model = mlp()
    watched = Watched(model)
    x = torch.ones(1, 2)

    def train(steps: int) -> int:
        for _ in range(steps):
            model(x).sum().backward()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        train(200)
        grown = train(600) - train(200)
    finally:
        tracemalloc.stop()
    assert abs(grown) < 20_000
    watched.session.close()
    assert watched.sink.summary is not None
    assert watched.sink.summary.skipped == {"steps unfinished at the end": 1}
    assert not any(kept for module in model.modules() for kept in hooks_of(module).values())


# Parts of our own that fail.


def test_a_sink_that_exits_the_program_exits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """``SystemExit`` is no failure: it is what the user's sink wants."""

    class Exits(ListSink):
        def write(self, frame: Any) -> None:
            raise SystemExit(3)

    pass_on_each_step(monkeypatch)
    model = mlp()
    watched = Watched(model, sinks=[Exits()])
    with pytest.raises(SystemExit) as ended:
        watched.step()
    assert ended.value.code == 3
    watched.session.close()
    assert not is_marked(model)


class FailingClock(FakeClock):
    """Fail at some readings."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__(tick_ns=1)
        self.error: type[Exception] | None = None
        self.kind = error

    def read(self) -> int:
        if self.error is not None:
            raise self.error("the clock")
        return super().read()


@pytest.mark.parametrize("error", [RuntimeError, StopIteration])
@pytest.mark.parametrize("where", ["forward", "backward", "optimizer", "step", "pause", "span"])
def test_a_clock_that_fails_anywhere_changes_no_bit_of_training(where: str, error: type[Exception]) -> None:
    """``torch.cuda`` errors come out of events as ``RuntimeError``: none of them ends a step."""

    def train(model: nn.Sequential, step: Callable[[], None], around: Callable[[str], Any]) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        made = []
        for _ in range(3):
            with around("forward"):
                output = model(torch.ones(2, 2))
            with around("backward"):
                output.sum().backward()
            with around("optimizer"):
                optimizer.step()
            optimizer.zero_grad()
            with around("span"), autoprof.span("mine"):
                pass
            with around("step"):
                step()
            made.append(output.detach())
        return [*made, *model.state_dict().values()]

    from contextlib import contextmanager, nullcontext

    expected = train(mlp(), lambda: None, lambda name: nullcontext())
    model, clock = mlp(), FailingClock(error)
    with Watched(model, clock=clock) as watched:

        @contextmanager
        def failing(name: str) -> Any:
            clock.error = clock.kind if name == where else None
            yield
            clock.error = None

        def step() -> None:
            with failing("pause"), watched.session.pause():
                pass
            with failing("step") if where == "step" else nullcontext():
                watched.session.step()

        found = train(model, step, failing)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    summary = watched.sink.summary
    assert summary is not None
    told = [reason for reason in summary.skipped if "failures" in reason] + [n for n in summary.notes if "off" in n]
    assert told
    for frame in watched.sink.frames:
        check_laws(frame)
    assert not any(kept for module in model.modules() for kept in hooks_of(module).values())


def test_a_recursion_may_be_nearly_as_deep_as_on_the_bare_model() -> None:
    """A module with any hook takes torch some frames more; a ``RecursionError`` of ours costs the spans only."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, x: torch.Tensor, left: int) -> Any:
            return self.layer(x) if left == 0 else self.forward(x, left - 1)

    def deepest(model: Deep) -> int:
        low, high = 1, sys.getrecursionlimit()
        while low < high - 1:
            middle = (low + high) // 2
            try:
                model(torch.ones(1, 1), middle)
                low = middle
            except RecursionError:
                high = middle
        return low

    bare = deepest(Deep())
    model = Deep()
    with Watched(model, config=everything()) as watched:
        assert deepest(model) >= bare - 16
        watched.step()
        model(torch.ones(1, 1), 1)
        watched.step()
