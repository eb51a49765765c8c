"""Programs whose optimizers change, skip, nest or take turns, and programs that train without ``backward``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import autoprof

from ..clock import CLOCK
from ..judge import Judge
from ..parts import ClockedSGD, Sleep, batches, rest, sgd, train_step, two_layers
from ..registry import program

STEPS = 60
PHASES = ("forward", "backward", "optimizer")


def backward(loss: Tensor) -> None:
    """Make a backward pass, charged to its phase."""
    with CLOCK.phase("backward"):
        loss.backward()  # type: ignore[no-untyped-call]


@program("steps", "the trunk is unfrozen after 40 steps, with a new optimizer; the first one was named")
def unfrozen_with_a_new_optimizer() -> Judge:
    model = two_layers()
    model[0].requires_grad_(False)
    optimizer = sgd(model[1])
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(100)):
        if number == 40:
            model[0].requires_grad_(True)
            optimizer = sgd(model)
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time()


@program("steps", "a second optimizer for the head is added after 30 steps, beside the one that was named")
def an_optimizer_is_added() -> Judge:
    model = two_layers()
    optimizers = [sgd(model[0])]
    session = autoprof.instrument(model, optimizer=optimizers[0])
    CLOCK.start()
    for number, batch in enumerate(batches(100)):
        if number == 30:
            optimizers.append(sgd(model[1]))
        loss = model(batch).square().mean()
        backward(loss)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time()


class AccumulatingSGD(ClockedSGD):
    """An optimizer whose step returns at once three times in four, and whose gradients add up until then."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls = 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        self.calls += 1
        return super().step(closure) if self.calls % 4 == 0 else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self.calls % 4 == 0:
            super().zero_grad(set_to_none)


@program("steps", "an optimizer that accumulates by itself: three of four calls of step() update nothing")
def step_that_returns_at_once() -> Judge:
    model = two_layers()
    optimizer = AccumulatingSGD(model.parameters())
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(400), 1):
        train_step(model, optimizer, batch)
        if number % 4 == 0:
            CLOCK.step()
    session.close()
    return Judge(session).steps(within=4).phases("forward", "backward").step_time()


class ScaledSGD(ClockedSGD):
    """An optimizer that skips its update where it finds an overflow, as one with its own loss scaling does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls = 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        self.calls += 1
        return None if self.calls % 10 == 5 else super().step(closure)


@program("steps", "an optimizer with its own loss scaling skips one update in ten: the batch before it is a step too")
def a_scaler_skips_an_update() -> Judge:
    model = two_layers()
    optimizer = ScaledSGD(model.parameters())
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(100):
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    judge = Judge(session)
    found = judge.summary.steps + judge.summary.warmup_steps + judge.summary.unsampled_steps
    return judge.is_true("steps", 89 <= found <= 101, found, "100, or the 90 updates")


@program("steps", "an evolution strategy: forwards under no_grad of noisy parameters, and the parameters are moved")
def evolution_strategy() -> Judge:
    model = two_layers()
    session = autoprof.instrument(model)
    parameters = list(model.parameters())
    CLOCK.start()
    with torch.no_grad():
        for batch in batches(15):
            for _ in range(4):
                noise = [torch.randn_like(one) for one in parameters]
                for one, change in zip(parameters, noise, strict=True):
                    one.add_(change, alpha=1e-3)
                model(batch)
                for one, change in zip(parameters, noise, strict=True):
                    one.sub_(change, alpha=1e-3)
            CLOCK.step()
    session.close()
    return Judge(session).says("how to count the steps", r"session\.step\(\)").silent()


@program("steps", "adversarial training as in TRADES: the attack uses the model in eval mode and autograd.grad")
def attack_in_eval_mode() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        model.eval()
        attack = batch.clone().requires_grad_()
        for _ in range(3):
            loss = model(attack).square().mean()
            with CLOCK.phase("backward"):
                (gradient,) = torch.autograd.grad(loss, attack)
            attack = (attack + 0.01 * gradient.sign()).detach().requires_grad_()
        model.train()
        train_step(model, optimizer, attack.detach())
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time().excludes_nothing()


@program("steps", "adversarial training in train mode: two attacks by autograd.grad before each update")
def attack_in_train_mode() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        attack = batch.clone().requires_grad_()
        for _ in range(2):
            loss = model(attack).square().mean()
            with CLOCK.phase("backward"):
                (gradient,) = torch.autograd.grad(loss, attack)
            attack = (attack + 0.01 * gradient.sign()).detach().requires_grad_()
        train_step(model, optimizer, attack.detach())
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time().excludes_nothing()


class SAM(torch.optim.Optimizer):
    """Sharpness-aware minimisation: the step climbs, calls the closure and lets the inner optimizer descend."""

    def __init__(self, parameters: Any, inner: Any) -> None:
        super().__init__(parameters, {})
        self.inner = inner

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with CLOCK.phase("optimizer"):
            rest(1.0)
            for group in self.param_groups:
                for one in group["params"]:
                    one.add_(one.grad, alpha=1e-4)
            with torch.enable_grad():
                closure()
            for group in self.param_groups:
                for one in group["params"]:
                    one.sub_(one.grad, alpha=1e-4)
            self.inner.step()


@program("steps", "sharpness-aware minimisation, derived from torch's Optimizer: two passes and one step each")
def sharpness_aware_minimisation() -> Judge:
    model = two_layers()
    optimizer = SAM(model.parameters(), sgd(model))
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):

        def closure(batch: Tensor = batch) -> None:
            backward(model(batch).square().mean())

        closure()
        optimizer.step(closure)
        optimizer.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time()


class Agent(nn.Module):
    """A critic and an actor."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.actor = Sleep(1, 1, "critic"), Sleep(1, 1, "actor")
        self.log_alpha = nn.Parameter(torch.zeros(1))


@program("steps", "soft actor-critic: the critic steps each iteration, actor and temperature twice each second one")
def soft_actor_critic() -> Judge:
    agent = Agent()
    target = copy.deepcopy(agent.critic)
    of_critic, of_actor = sgd(agent.critic), sgd(agent.actor)
    of_alpha = ClockedSGD([agent.log_alpha])
    session = autoprof.instrument(agent, optimizer=[of_critic, of_actor, of_alpha])
    CLOCK.start()
    for number, batch in enumerate(batches(200), 1):
        with torch.no_grad():
            wanted = target(agent.actor(batch))
        backward((agent.critic(batch) - wanted).square().mean())
        of_critic.step()
        of_critic.zero_grad()
        if number % 2 == 0:
            for _ in range(2):
                backward(-agent.critic(agent.actor(batch)).mean())
                of_actor.step()
                of_actor.zero_grad()
                backward((agent.log_alpha.exp() * 0.1).sum())
                of_alpha.step()
                of_alpha.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps(within=3)


@program("steps", "delayed policy updates: the critic steps each iteration, the actor each second one")
def delayed_policy_updates() -> Judge:
    agent = Agent()
    of_critic, of_actor = sgd(agent.critic), sgd(agent.actor)
    session = autoprof.instrument(agent, optimizer=[of_critic, of_actor])
    CLOCK.start()
    for number, batch in enumerate(batches(200), 1):
        backward(agent.critic(batch).square().mean())
        of_critic.step()
        of_critic.zero_grad()
        if number % 2 == 0:
            backward(-agent.critic(agent.actor(batch)).mean())
            of_actor.step()
            of_actor.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps(within=2)
