"""A model that the program drops is freed, though nobody closed its session; the next session closes that one."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import autoprof
from autoprof.base.process import lifecycle


def train(optimizer_is_named: bool) -> tuple[autoprof.Session, list[weakref.ref[object]]]:
    """Train a model in a session that nobody closes; return references to all that it is made of."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    session = autoprof.instrument(model, {"sinks": {}}, optimizer=optimizer if optimizer_is_named else None)
    for _ in range(8):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    weight = model[0].weight
    assert weight.grad is not None
    return session, [weakref.ref(one) for one in (model, model[0], weight, weight.grad, optimizer)]


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_a_dropped_model_is_freed_with_its_optimizer_and_gradients(named: bool) -> None:
    """While its session is open; that can be read and closed afterwards."""
    session, references = train(named)
    gc.collect()
    assert [one() for one in references] == [None] * len(references)
    assert session.summary().steps + session.summary().warmup_steps >= 7
    session.close()


def test_the_next_session_closes_that_of_a_dropped_model(caplog: pytest.LogCaptureFixture) -> None:
    """A session whose model is still there stays open."""
    dropped, _ = train(True)
    kept_model = nn.Linear(2, 2)
    kept = autoprof.instrument(kept_model, {"sinks": {}})
    gc.collect()
    model = nn.Linear(3, 3)
    with autoprof.instrument(model, {"sinks": {}}):
        assert lifecycle.session_of(kept_model) is kept
        dropped.step()
        assert "session.step: this session is closed" in caplog.text
    kept.close()
