"""The session behind every framework's callback, driven by hand: it needs no framework."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import is_marked
from framework_runs import ending, times
from torch import nn

import autoprof
from autoprof.base.process import lifecycle
from autoprof.integrations._training import AGAIN, Training


def mlp() -> nn.Module:
    """Return a small model."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train(training: Training, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> None:
    """Train as a framework does: two batches in a step, an event after each optimizer step."""
    for _ in range(steps):
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        training.log_all({"learning_rate": 0.1, "train_runtime": 3.0, "note": "text"})
        training.end_step()


def opened(config: Any, model: nn.Module, **facts: Any) -> tuple[Training, torch.optim.Optimizer]:
    """Return a training that has begun, and its optimizer."""
    training, optimizer = Training(config, ()), torch.optim.SGD(model.parameters(), lr=0.1)
    training.begin(model, [optimizer], **facts)
    return training, optimizer


def test_steps_end_where_the_framework_says(config: Any) -> None:
    """Forwards and optimizer steps in between end none; numbers have the session's names."""
    model = mlp()
    training, optimizer = opened(config, model, total_steps=10.0)
    train(training, model, optimizer)
    training.end()
    assert training.session is not None
    summary = training.session.summary()
    assert summary.all_steps == 4
    assert summary.scalars["lr"] == 0.1
    assert "train_runtime" not in summary.scalars
    assert summary.progress is not None
    assert (summary.progress.total_steps, summary.progress.remaining_steps) == (10, 6)
    assert not [module for module in model.modules() if is_marked(module)]


def test_excluded_time_has_the_name_of_its_event(config: Any) -> None:
    """Saving that follows validation is counted by itself; an event without a begin changes nothing."""
    model = mlp()
    training, optimizer = opened(config, model)
    training.include()
    train(training, model, optimizer, 2)
    training.exclude("validation")
    training.exclude("checkpoint saving")
    training.include()
    train(training, model, optimizer, 2)
    training.end()
    assert times(training.session.summary()) == {"validation": 1, "checkpoint saving": 1}


def test_validation_that_was_recognised_before_its_event_is_counted_once(config: Any) -> None:
    """Lightning calls ``model.eval()`` before the event."""
    model = mlp()
    training, optimizer = opened(config, model)
    train(training, model, optimizer, 2)
    model.eval()
    training.exclude("validation")
    with torch.no_grad():
        model(torch.ones(2, 4))
    training.include()
    model.train()
    train(training, model, optimizer, 2)
    training.end()
    summary = training.session.summary()
    assert times(summary) == {"validation": 1}
    assert summary.all_steps == 4


def test_a_training_that_begins_again_closes_its_first_session(config: Any) -> None:
    """A framework may retry with a smaller batch."""
    model = mlp()
    training, optimizer = opened(config, model)
    train(training, model, optimizer, 1)
    first = training.session
    training.begin(model, [optimizer])
    training.end()
    assert first is not None
    assert first.folder is not None
    assert ending(first.folder) == AGAIN
    assert first is not training.session


@pytest.mark.parametrize("part", ["model", "child"])
def test_a_session_of_the_program_stays_open(config: Any, part: str) -> None:
    """Steps are its own, and the framework's end does not close it."""
    model = mlp()
    session = autoprof.instrument(model if part == "model" else model[0], config)
    training, optimizer = opened(config, model, total_steps=4)
    train(training, model, optimizer)
    training.end()
    assert training.session is session
    assert lifecycle.session_of(model if part == "model" else model[0]) is session
    session.close()
    assert session.summary().all_steps == 4
    assert len(list(Path(config["output"]).iterdir())) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"])
def test_a_copy_has_no_session(config: Any, copied: Any) -> None:
    """Frameworks copy callbacks and send them to other processes."""
    training, _ = opened(config, mlp())
    other = copied(training)
    assert other.session is None
    assert not other.is_open
    training.end()


def test_an_optimizer_of_another_kind_is_no_error(config: Any) -> None:
    """DeepSpeed has optimizers without torch's hooks: then every optimizer that steps counts."""
    model = mlp()
    training, optimizer = Training(config, ()), torch.optim.SGD(model.parameters(), lr=0.1)
    training.begin(model, [object()])
    train(training, model, optimizer)
    training.end()
    assert training.session is not None
    assert training.session.summary().all_steps == 4
