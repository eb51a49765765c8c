"""Calls of the model on other threads: they are not recorded, and no part of the training loop."""

import threading
from collections.abc import Callable

import pytest
import torch
from engine_laws import Watched, check_laws, everything
from torch import nn

from autoprof import Phase, StepFrame
from autoprof.base.frame import TRAINING_LANE
from autoprof.capture.recorder import Recorder
from autoprof.session.step_detector import MIN_UPDATES
from autoprof.testing import FakeClock

FORWARD = {"targets": [{"match": ".*", "phases": ["forward"]}]}


def on_another_thread(work: Callable[[], object]) -> None:
    """Run a function on another thread, and wait for it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def infer(model: nn.Module) -> None:
    """Call a model without gradients."""
    with torch.no_grad():
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


def test_calls_on_other_threads_are_not_recorded_and_noted_once(changes: dict[str, object]) -> None:
    """The training thread's calls are recorded as ever."""
    model = two_layers()
    with Watched(model, config=everything(**changes)) as watched:
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            on_another_thread(lambda: infer(model))
            model(torch.ones(1, 2)).sum().backward()
            watched.step()
        notes = watched.session.summary().notes
    for frame in watched.frames:
        assert (forwards(frame, training=True), forwards(frame, training=False)) == (6, 0)
        check_laws(frame)
    assert sum(note.startswith("other threads call the model") for note in notes) == 1


def replica_of(layer: nn.Module) -> nn.Module:
    """Return a replica with the weights of the original, as ``torch.nn.parallel.replicate`` makes it."""
    replica: nn.Module = layer._replicate_for_data_parallel()
    for name, weight in layer.named_parameters():
        setattr(replica, name, weight.detach())
    return replica


def test_a_replica_on_another_thread_is_recorded(changes: dict[str, object]) -> None:
    """``nn.DataParallel`` runs the training step itself on such threads."""
    model = two_layers()
    with Watched(model, config=everything(**changes)) as watched:
        replicas = [replica_of(layer) for layer in model]
        on_another_thread(lambda: [infer(replica) for replica in replicas])
        watched.step()
        (frame,) = watched.frames
    assert forwards(frame, training=False) == 2


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
    assert summary.stages == ()
    assert [frame.step for frame in watched.frames] == [*range(1, MIN_UPDATES + 5)]


def test_training_on_another_thread_after_a_while_is_followed() -> None:
    """Its first step may be counted with the one before."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(steps: int) -> None:
        for _ in range(steps):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()

    with Watched(model, config=everything(step="auto"), optimizer=optimizer) as watched:
        train(MIN_UPDATES + 1)
        on_another_thread(lambda: train(6))
    assert len(watched.sink.frames) >= MIN_UPDATES + 1 + 5
    assert forwards(watched.sink.frames[-1], training=True) == 3


def test_the_native_id_follows_the_training_thread() -> None:
    """The thread that takes the marks of a step is the training thread from then on."""
    recorder = Recorder(FakeClock())
    numbers = [recorder.native_id]
    on_another_thread(lambda: (recorder.take(), numbers.extend((recorder.native_id, threading.get_native_id()))))
    assert numbers[1] == numbers[2] != numbers[0] == threading.get_native_id()
