"""Observing changes nothing: bits, objects, copies, files, hooks, memory, processes, compilation."""

from __future__ import annotations

import gc
import io

import pytest
import torch
from engine_laws import Watched, check_laws, count, everything
from small_models import MODELS, make, train
from torch import nn

import autoprof


def same_bits(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Tell whether two lists of tensors are equal to the last bit."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("step", ["manual", "auto"])
def test_training_is_the_same_to_the_last_bit(name: str, step: str) -> None:
    """Outputs, gradients, parameters, buffers, random state after three steps, every module in all phases."""
    expected = train(*make(name), 3, lambda: None)
    model, draw = make(name)
    with Watched(model, config=everything(step=step)) as watched:
        found = train(model, draw, 3, watched.step if step == "manual" else lambda: None)
    assert same_bits(found, expected)
    assert len(watched.sink.frames) == 3
    for frame in watched.sink.frames:
        check_laws(frame)
        assert count(frame, autoprof.Phase.BACKWARD)[type(model).__name__] == 1
    assert watched.sink.summary is not None
    assert set(watched.sink.summary.skipped) <= {"steps unfinished at the end"}


# Copies and pickles.


def test_the_state_dict_is_unchanged() -> None:
    """Keys, metadata and values; it loads with ``weights_only``."""
    model = make("conv")[0]
    before = model.state_dict()
    with Watched(model):
        during = model.state_dict()
        assert list(during) == list(before)
        assert during._metadata == before._metadata
        assert all(torch.equal(during[key], before[key]) for key in before)
        buffer = io.BytesIO()
        torch.save(during, buffer)
        buffer.seek(0)
        assert list(torch.load(buffer, weights_only=True)) == list(before)
        assert repr(model) == repr(make("conv")[0])


# Memory.


@pytest.mark.parametrize("name", ["mlp", "checkpointed", "checkpointed-reentrant", "structured"])
def test_a_step_leaves_no_reference_cycle(name: str) -> None:
    """The collector finds nothing of ours, so no step is slow for our sake."""
    model, draw = make(name)
    with Watched(model) as watched:

        def step() -> None:
            model(draw()).sum().backward()
            watched.session.log(loss=1.0)
            watched.step()
            watched.session.summary()

        for _ in range(3):
            step()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(3):
                step()
            gc.collect()
            ours = [
                found
                for found in gc.garbage
                if type(found).__module__.startswith("autoprof")
                or getattr(found, "__module__", None) == "autoprof._capture.hooks.module_hooks"
            ]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert ours == []


def test_nothing_that_the_garbage_collector_walks_survives_a_step() -> None:
    """A hundred steps leave as many tracked objects as ten (the sink drops its frames)."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with Watched(model) as watched:

        def run(steps: int) -> int:
            for _ in range(steps):
                model(torch.ones(1, 2)).sum().backward()
                watched.step()
            watched.session.summary()
            watched.sink.frames.clear()
            gc.collect()
            return len(gc.get_objects())

        run(40)
        assert run(100) - run(10) < 20
