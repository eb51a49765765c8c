"""Calls of the model on other threads: recorded within limits, and no part of the training loop."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from engine_laws import Watched, check_laws, everything
from torch import nn

from autoprof import Phase, StepFrame, instrument
from autoprof._capture import other_threads
from autoprof._session import sampler
from autoprof._session.step_detector import MIN_UPDATES
from autoprof.frame import TRAINING_LANE
from autoprof.testing import ListSink

FORWARD = {"targets": [{"match": ".*", "phases": ["forward"]}]}
NOTE = "other threads call the model"


def on_another_thread(work: Callable[[], object]) -> None:
    """Run a function on another thread, and wait for it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def infer(model: nn.Module, times: int = 1) -> None:
    """Call a model without gradients."""
    with torch.no_grad():
        for _ in range(times):
            model(torch.ones(1, 2))


def forwards(frame: StepFrame, *, training: bool) -> int:
    """Return the calls of forwards on the training thread, or on others."""
    return sum(
        span.calls for span in frame.spans if span.phase is Phase.FORWARD and (span.lane == TRAINING_LANE) is training
    )


def two_layers() -> nn.Sequential:
    """Return a model of three modules, itself included."""
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


@pytest.fixture(params=["forward", "all phases"])
def changes(request: pytest.FixtureRequest) -> dict[str, object]:
    """Return the changes of a configuration that times forward only, or backward too."""
    return FORWARD if request.param == "forward" else {}


def test_calls_on_other_threads_that_are_off_are_passed_over_and_counted(changes: dict[str, object]) -> None:
    """The training thread's calls are recorded as before."""
    model = two_layers()
    with Watched(model, config=everything(**changes)) as watched:
        for off in (False, True):
            if off:
                watched.session._recorder.others.switch_off()
            model(torch.ones(1, 2)).sum().backward()
            on_another_thread(lambda: infer(model))
            model(torch.ones(1, 2)).sum().backward()
            if off:
                skipped = watched.session._recorder.others.take().skipped
            watched.step()
        first, second = watched.frames
    assert (forwards(first, training=True), forwards(first, training=False)) == (6, 3)
    assert (forwards(second, training=True), forwards(second, training=False)) == (6, 0)
    assert skipped == 6
    for frame in (first, second):
        check_laws(frame)
    assert count_backwards(first) == count_backwards(second)


def count_backwards(frame: StepFrame) -> int:
    """Return the number of backward spans of modules."""
    return sum(span.phase is Phase.BACKWARD and span.fqn is not None for span in frame.spans)


def test_a_step_records_a_limited_number_of_marks_of_other_threads(
    changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next step records them again, and the reports say so once."""
    monkeypatch.setattr(other_threads, "MAX_OTHER_MARKS", 12)
    model = two_layers()
    with Watched(model, config=everything(**changes)) as watched:
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            on_another_thread(lambda: infer(model, 10))
            watched.step()
        for frame in watched.frames:
            assert (forwards(frame, training=True), forwards(frame, training=False)) == (3, 6)
            check_laws(frame)
        assert sum("more often than is recorded in a step" in note for note in watched.session.summary().notes) == 1


def test_marks_of_other_threads_are_switched_off_once_the_budget_does_not_pay_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reports say so, once; the steps that follow have the training thread's calls only."""
    monkeypatch.setattr(sampler, "OTHER_THREADS_LOAN_NS", 0)
    monkeypatch.setattr(sampler, "OTHER_THREADS_SHARE", 0.0)
    model, sink = two_layers(), ListSink()
    config = everything(sample={"warmup": 0, "budget": 0.5}, monitor="off")
    with instrument(model, config, sinks=(sink,)) as session:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            on_another_thread(lambda: infer(model))
            session.step()
        notes = session.summary().notes
    frames = sink.frames[:3]
    assert [forwards(frame, training=False) for frame in frames] == [3, 0, 0]
    assert [forwards(frame, training=True) for frame in frames] == [3, 3, 3]
    assert sum(note.startswith(NOTE) for note in notes) == 1


def test_the_cost_on_other_threads_is_part_of_the_steps_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As their own processor time, whatever the training thread does meanwhile."""
    times = iter(range(10**9, 10**12, 10**6))
    monkeypatch.setattr(other_threads, "thread_time_ns", lambda: next(times))
    model = two_layers()
    with Watched(model, config=everything()) as watched:
        on_another_thread(lambda: infer(model))
        watched.step()
        (frame,) = watched.frames
    assert frame.overhead_ns >= 6 * 10**6


def test_an_evaluation_on_another_thread_is_no_validation_and_ends_no_step() -> None:
    """Training goes on meanwhile: nothing of its time is excluded."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def evaluate() -> None:
        model.eval()
        infer(model)
        model.train()

    def train() -> None:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    with Watched(model, config=everything(step="auto"), optimizer=optimizer) as watched:
        for _ in range(MIN_UPDATES):
            train()
        for _ in range(4):
            on_another_thread(evaluate)
            train()
        summary = watched.session.summary()
    assert summary.excluded == ()
    assert [frame.step for frame in watched.frames] == [*range(1, MIN_UPDATES + 5)]
