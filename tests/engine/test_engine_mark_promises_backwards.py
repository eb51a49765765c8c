"""Backward passes of every kind are recorded as they happen, and give the gradients of the bare model."""

from __future__ import annotations

from typing import Any

import torch
from mark_promises import as_bare, backwards, batch, forwards, recorded, train_step, two_layers


def test_a_backward_into_a_hidden_output_runs_the_node_that_made_it() -> None:
    """``backward(inputs=[hidden])``: torch runs this node, though nobody needs its gradients."""

    def work(model: Any) -> Any:
        hidden = model[0](batch())
        model[2](torch.tanh(hidden)).square().sum().backward(inputs=[hidden])
        return hidden.grad

    for frame in as_bare(two_layers, work):
        assert forwards(frame) == {"0": 1, "2": 1}
        assert backwards(frame)["2"] == 1
        assert backwards(frame)["0"] <= 1


# Sessions that come and go.


def test_a_graph_made_before_the_session_runs_unrecorded() -> None:
    """Nobody saw its forward."""
    model = two_layers()
    output = model(batch())
    with recorded(model) as watched:
        output.sum().backward()
        watched.step()
    assert not backwards(watched.sink.frames[0])


def test_a_graph_made_during_the_session_runs_after_it() -> None:
    """Twice, with the gradients of the bare model."""
    model = two_layers()
    train_step(model)
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    with recorded(model):
        output = model(batch())
    output.square().sum().backward(retain_graph=True)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))
    output.square().sum().backward()


def test_a_session_closed_inside_a_call_lets_the_call_end() -> None:
    """A hook of the program closes it; the outer calls return as always."""
    model = two_layers()
    expected = model(batch())
    with recorded(model) as watched:
        model[1].closing = watched.session.close
        handle = model[1].register_forward_hook(lambda *_: watched.session.close())
        assert torch.equal(model(batch()), expected)
        handle.remove()
        del model[1].closing
        assert torch.equal(model(batch()), expected)
