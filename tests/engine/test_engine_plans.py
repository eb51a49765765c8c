"""Steps that repeat a sequence of marks are resolved together, and get the same spans as each alone."""

import threading

import pytest
import torch
from engine_laws import Watched, everything, pass_on_each_step, tree
from torch import nn

import autoprof
from autoprof.testing import FakeClock


class Choice(nn.Module):
    """Run as many layers as told."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

    def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        for layer in list(self.layers)[:depth]:
            x = layer(x)
        return x


def run(model: nn.Module, watched: Watched, depth: int) -> None:
    """Train one step."""
    model(torch.ones(1, 2), depth).sum().backward()
    watched.step()


def mixed_steps(clock: FakeClock) -> list[tuple[object, ...]]:
    """Train steps alike and unlike, with a pause, logged durations, bytes, another thread; return what they became."""
    torch.manual_seed(0)
    model = Choice()
    config = everything(targets=[{"match": r"layers\.0", "memory": True}, {"match": ".+"}])
    with Watched(model, clock=clock, config=config) as watched:
        kept = None
        for at, depth in enumerate([3, 3, 3, 2, 3, 3, 4, 4, 3, 3]):
            clock.advance(at)
            loss = model(torch.ones(1, 2), depth).sum()
            if at in (1, 4):
                with watched.session.pause():
                    clock.advance(1000)
            if at in (2, 5, 7):
                autoprof.log_timing("elsewhere", at)
            if at == 6:
                thread = threading.Thread(target=model.layers[0], args=(torch.ones(1, 2),))
                thread.start()
                thread.join()
            if at == 7:
                kept = loss  # its backward comes in the next step
            else:
                loss.backward()
            if at == 8 and kept is not None:
                kept.backward()
            watched.session.log(loss=at)
            watched.step()
    return [
        (
            frame.step,
            frame.duration_ns,
            dict(frame.scalars),
            tree(frame),
            frame.start_ns.tolist(),
            frame.host_ns.tolist(),
        )
        for frame in watched.frames
    ]


def test_steps_resolved_together_become_what_each_alone_becomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten steps that wait for the end, and ten that are resolved as they come."""
    together = mixed_steps(FakeClock(tick_ns=1))
    pass_on_each_step(monkeypatch)
    assert mixed_steps(FakeClock(tick_ns=1)) == together
