"""Gradients that ``zero_grad`` clears before a step has used them are counted, and those that were used are not."""
# mypy: allow-untyped-calls

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from autoprof.base.summary import Finding
from autoprof.testing import FakeClock, open_session
from tests.defects.training import WIDTH, Layer, SlowSGD

MS = 1_000_000
STEPS = 20
CONFIG = {"targets": [{"match": "generator|critic"}], "sinks": {}, "flops": "off"}


class Gan:
    """A generator and a critic, each 30 ms forward and 60 ms backward, with an optimizer each."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        generator, critic = (Layer(self.clock, forward_ms=30, backward_ms=60) for _ in range(2))
        self.model = nn.Sequential(OrderedDict(generator=generator, critic=critic))
        self.of_generator, self.of_critic = (SlowSGD(one, self.clock, MS) for one in (generator, critic))

    def loss(self, change: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
        x = change(self.model.generator(torch.randn(4, WIDTH)))
        score: Tensor = self.model.critic(x).mean()
        return score

    def finding(self, step: Callable[[Gan], None]) -> Finding | None:
        """Return the finding on unused gradients of a training by these steps."""
        both = self.of_generator, self.of_critic
        with open_session(self.model, CONFIG, clock=self.clock, optimizer=both) as session:
            for _ in range(STEPS):
                step(self)
                session.step()
        found = (one for one in session.summary().findings if one.rule == "unused-gradients")
        return next((one for one in found if one.severity != "info"), None)


def update_critic(gan: Gan, change: Callable[[Tensor], Tensor] = lambda x: x) -> None:
    gan.of_critic.zero_grad()
    gan.loss(change).backward()
    gan.of_critic.step()


def update_generator(gan: Gan) -> None:
    gan.of_generator.zero_grad()
    gan.loss().backward()
    gan.of_generator.step()


def test_gradients_of_a_generator_that_the_loss_of_the_critic_reaches_are_a_note() -> None:
    """Three passes of four through the generator are cleared, and one of four through the critic."""

    def step(gan: Gan) -> None:
        for _ in range(3):
            update_critic(gan)
        update_generator(gan)

    finding = Gan().finding(step)
    assert finding is not None
    assert (finding.name, finding.severity, finding.gain_ns) == ("generator", "note", None)
    assert finding.evidence["cleared"] == pytest.approx(0.75, abs=0.02)
    assert "of the gradients that backward adds up in generator are cleared by zero_grad" in finding.why


def test_of_a_detached_loss_only_the_pass_of_the_generator_through_the_critic_is_cleared() -> None:
    """Half of it, an eighth of the critic's passes, is less than a tenth of the step."""

    def step(gan: Gan) -> None:
        for _ in range(3):
            update_critic(gan, Tensor.detach)
        update_generator(gan)

    assert Gan().finding(step) is None


def test_a_closure_that_is_called_beside_the_step_is_a_note() -> None:
    def step(gan: Gan) -> None:
        for _ in range(2):
            gan.of_generator.zero_grad()
            gan.of_critic.zero_grad()
            gan.loss().backward()
        gan.of_generator.step()
        gan.of_critic.step()

    finding = Gan().finding(step)
    assert finding is not None
    assert "of the step, for nothing unless the program reads them itself" in finding.why
    assert finding.evidence["cleared"] == pytest.approx(0.5, abs=0.02)


def accumulate(gan: Gan, *, set_to_none: bool = True) -> None:
    """Update by two micro-batches, with clipped gradients."""
    for optimizer in (gan.of_generator, gan.of_critic):
        optimizer.zero_grad(set_to_none=set_to_none)
    for _ in range(2):
        gan.loss().backward()
    nn.utils.clip_grad_norm_(gan.model.parameters(), 0.1)
    for optimizer in (gan.of_generator, gan.of_critic):
        optimizer.step()


def clear_zeros(gan: Gan) -> None:
    """Update with gradients that are set to zero."""
    accumulate(gan, set_to_none=False)


def update_by_hand(gan: Gan) -> None:
    """Use the gradients without a step, as the first half of a sharpness-aware minimisation does."""
    gan.loss().backward()
    with torch.no_grad():
        for one in gan.model.parameters():
            one.add_(one.grad, alpha=-0.1)
    accumulate(gan)


def update_out_of_sight(gan: Gan) -> None:
    """Use the gradients by the data of the parameters, which has a version of its own."""
    gan.loss().backward()
    for one in gan.model.parameters():
        one.data -= 0.1 * one.grad
    gan.model.zero_grad()


@pytest.mark.parametrize("step", [accumulate, clear_zeros, update_by_hand, update_out_of_sight])
def test_gradients_that_are_used_are_no_finding(step: Callable[[Gan], None]) -> None:
    assert Gan().finding(step) is None
