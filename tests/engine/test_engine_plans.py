"""The plan of a sequence is made once; a step that repeats it costs arithmetic, and gets the same spans."""

from __future__ import annotations

import threading

import pytest
import torch
from engine_laws import Watched, check_laws, everything, pass_on_each_step, tree
from torch import nn

import autoprof
from autoprof._resolve.planner import Planner
from autoprof.testing import FakeClock


class Counted:
    """Count how often a plan is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        plan = Planner.plan

        def note(planner: Planner, *args: object, **more: object) -> object:
            self.made += 1
            return plan(planner, *args, **more)

        monkeypatch.setattr(Planner, "plan", note)


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


def test_different_sequences_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alternating depths: a plan each, and every step has the spans of its own."""
    counted = Counted(monkeypatch)
    model = Choice()
    depths = [1, 4, 2, 1, 3, 4, 4, 2, 1]
    with Watched(model) as watched:
        for depth in depths:
            run(model, watched, depth)
    assert counted.made == 4
    for frame, depth in zip(watched.frames, depths, strict=True):
        check_laws(frame)
        assert len([s for s in frame.spans if s.name != "(backward)"]) == 2 * (1 + depth)


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
