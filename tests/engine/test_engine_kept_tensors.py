"""Variables that keep more tensors from look to look are named, with the line that adds to them."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import torch

from autoprof.probes._kept_tensors import KeptTensors, KeptTensorsProbe


def loss_of(weight: torch.Tensor) -> torch.Tensor:
    """Return a loss whose graph has a few operations."""
    return (weight * 2).square().mean()


def look(probe: KeptTensorsProbe) -> None:
    """Look from the function that calls."""
    probe.look(sys._getframe(1))


def names(probe: KeptTensorsProbe) -> list[tuple[str, str]]:
    """Return the variables that grow, with their kinds."""
    return [(one.variable, one.kind) for one in probe.growing()]


def test_a_running_loss_that_keeps_each_graph_is_named_with_its_line() -> None:
    """The line is the one that adds, not the one that starts at zero."""
    probe, weight = KeptTensorsProbe(), torch.ones(4, requires_grad=True)
    running: Any = 0.0
    for _ in range(6):
        running = running + loss_of(weight)
        look(probe)
    (kept,) = probe.growing()
    start = test_a_running_loss_that_keeps_each_graph_is_named_with_its_line.__code__.co_firstlineno
    assert kept == KeptTensors("running", __file__, start + 5, "graph", kept.count)


def test_the_loss_of_the_present_step_is_not_named() -> None:
    """Its graph is as long in each step."""
    probe, weight = KeptTensorsProbe(), torch.ones(4, requires_grad=True)
    for _ in range(6):
        loss = loss_of(weight)
        look(probe)
    assert loss.requires_grad
    assert names(probe) == []


def test_containers_that_are_filled_are_named() -> None:
    """Lists, dictionaries and queues without an end, also of pairs."""
    probe = KeptTensorsProbe()
    outputs: list[tuple[int, torch.Tensor]] = []
    by_step: dict[int, torch.Tensor] = {}
    last: deque[torch.Tensor] = deque(maxlen=2)
    for number in range(8):
        outputs.append((number, torch.ones(2)))
        by_step[number] = torch.ones(2)
        last.append(torch.ones(2))
        if number > 3:
            look(probe)
    assert sorted(names(probe)) == [("by_step", "tensors"), ("outputs", "tensors")]


def test_numbers_may_be_kept() -> None:
    """A list of floats costs nothing."""
    probe = KeptTensorsProbe()
    losses: list[float] = []
    for _ in range(6):
        losses.append(1.0)
        look(probe)
    assert names(probe) == []


class Trainer:
    """A trainer that keeps its losses."""

    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []

    def fit(self, probe: KeptTensorsProbe) -> None:
        """Train six steps."""
        for _ in range(6):
            self.losses.append(torch.ones(1))
            look(probe)


def test_an_attribute_of_the_object_that_trains_is_named_also_after_it_has_returned() -> None:
    """Looks that follow find other functions."""
    probe = KeptTensorsProbe()
    Trainer().fit(probe)
    look(probe)
    assert names(probe) == [("self.losses", "tensors")]
    assert probe.growing()[0].line == Trainer.fit.__code__.co_firstlineno + 3


def test_a_graph_of_many_operations_is_followed_no_further_than_the_limit() -> None:
    """A chain of 20,000 operations in one step is measured alike in each."""
    probe, weight = KeptTensorsProbe(), torch.ones(1, requires_grad=True)
    for _ in range(5):
        value = weight
        for _ in range(20_000):
            value = value + 1
        look(probe)
    assert names(probe) == []
