"""Programs whose optimizers change, skip, nest or take turns, and programs that train without ``backward``."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..clock import CLOCK
from ..judge import Judge
from ..parts import (
    Chain,
    ClockedSGD,
    Parts,
    Sleep,
    batches,
    judge_loop,
    rest,
    sgd,
    train_step,
    two_layers,
    update,
    weight,
)
from ..registry import program

STEPS = 60
PHASES = ("forward", "backward", "optimizer")


@program("steps", "the trunk is unfrozen after 40 steps, with a new optimizer; the first one was named")
def unfrozen_with_a_new_optimizer() -> Judge:
    model = two_layers()
    model[0].requires_grad_(False)
    optimizers = [sgd(model[1])]

    def step(batch: Tensor) -> None:
        if len(CLOCK.steps) == 40:
            model[0].requires_grad_(True)
            optimizers[0] = sgd(model)
        train_step(model, optimizers[0], batch)

    return judge_loop(model, step, 100, optimizers[0]).steps().phases(*PHASES).step_time()


@program("steps", "a second optimizer for the head is added after 30 steps, beside the one that was named")
def an_optimizer_is_added() -> Judge:
    model = two_layers()
    optimizers = [sgd(model[0])]

    def step(batch: Tensor) -> None:
        if len(CLOCK.steps) == 30:
            optimizers.append(sgd(model[1]))
        update(model(batch).square().mean(), *optimizers)

    return judge_loop(model, step, 100, optimizers[0]).steps().phases(*PHASES).step_time()


class SkippingSGD(ClockedSGD):
    """An optimizer whose step returns at once in some calls; ``keeps``: the gradients add up until it updates."""

    def __init__(self, model: nn.Module, updates: Callable[[int], bool], keeps: bool) -> None:
        super().__init__(model.parameters())
        self.calls, self.updates, self.keeps = 0, updates, keeps

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        self.calls += 1
        return super().step(closure) if self.updates(self.calls) else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self.updates(self.calls) or not self.keeps:
            super().zero_grad(set_to_none)


@program("steps", "an optimizer that accumulates by itself: three of four calls of step() update nothing")
def step_that_returns_at_once() -> Judge:
    model = two_layers()
    optimizer = SkippingSGD(model, lambda call: call % 4 == 0, keeps=True)

    def step(micro_batches: Tensor) -> None:
        for batch in micro_batches.chunk(4):
            train_step(model, optimizer, batch)

    judge = judge_loop(model, step, batches(100, 32), optimizer)
    return judge.steps(within=4).phases("forward", "backward").step_time()


@program("steps", "an optimizer with its own loss scaling skips one update in ten: the batch before it is a step too")
def a_scaler_skips_an_update() -> Judge:
    model = two_layers()
    optimizer = SkippingSGD(model, lambda call: call % 10 != 5, keeps=False)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), 100, optimizer)
    found = judge.summary.steps + judge.summary.warmup_steps + judge.summary.unsampled_steps
    return judge.is_true("steps", 89 <= found <= 101, found, "100, or the 90 updates")


@program("steps", "an evolution strategy: forwards under no_grad of noisy parameters, and the parameters are moved")
def evolution_strategy() -> Judge:
    model = two_layers()
    parameters = list(model.parameters())

    @torch.no_grad()
    def step(batch: Tensor) -> None:
        for _ in range(4):
            noise = [torch.randn_like(one) for one in parameters]
            torch._foreach_add_(parameters, noise, alpha=1e-3)
            model(batch)
            torch._foreach_sub_(parameters, noise, alpha=1e-3)

    return judge_loop(model, step, 15).says("how to count the steps", r"session\.step\(\)").silent()


@program("steps", "a zeroth-order method: two forwards under no_grad, gradients set by hand, optimizer.step()")
def zeroth_order_method() -> Judge:
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        with torch.no_grad():
            losses = [model(batch).square().mean() for _ in range(2)]
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, (losses[0] - losses[1]).item())
        optimizer.step()
        optimizer.zero_grad()

    judge = judge_loop(model, step, STEPS, optimizer)
    return judge.steps().phases("forward", "optimizer").step_time().excludes_nothing()


def train_against_attacks(attacks: int, evaluates: bool) -> Judge:
    """Change each batch by attacks with ``autograd.grad`` before the update."""
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        model.train(not evaluates)
        attack = batch.clone().requires_grad_()
        for _ in range(attacks):
            loss = model(attack).square().mean()
            with CLOCK.phase("backward"):
                (gradient,) = torch.autograd.grad(loss, attack)
            attack = (attack + 0.01 * gradient.sign()).detach().requires_grad_()
        model.train()
        train_step(model, optimizer, attack.detach())

    return judge_loop(model, step, STEPS, optimizer).steps().phases(*PHASES).step_time().excludes_nothing()


@program("steps", "adversarial training as in TRADES: the attack uses the model in eval mode and autograd.grad")
def attack_in_eval_mode() -> Judge:
    return train_against_attacks(3, evaluates=True)


@program("steps", "adversarial training in train mode: two attacks by autograd.grad before each update")
def attack_in_train_mode() -> Judge:
    return train_against_attacks(2, evaluates=False)


class Lookahead:
    """An optimizer of one's own around torch's, which pulls the parameters back each fifth step."""

    def __init__(self, inner: Any, sleep_ms: float) -> None:
        self.inner, self.calls, self.sleep_ms = inner, 0, sleep_ms
        self.param_groups = inner.param_groups
        self.slow = [one.detach().clone() for group in inner.param_groups for one in group["params"]]

    def zero_grad(self) -> None:
        self.inner.zero_grad()

    def step(self) -> None:
        with CLOCK.phase("optimizer"):
            self.inner.step()
            rest(self.sleep_ms)
            self.calls += 1
            if self.calls % 5 == 0:
                fast = [one for group in self.inner.param_groups for one in group["params"]]
                with torch.no_grad():
                    for slow, one in zip(self.slow, fast, strict=True):
                        slow.lerp_(one, 0.5)
                        one.copy_(slow)


@program("steps", "an optimizer of one's own around torch's, named: its whole step() is the optimizer")
def wrapper_of_an_optimizer() -> Judge:
    model = two_layers()
    optimizer: Any = Lookahead(sgd(model), 2.0)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), STEPS, optimizer)
    return judge.steps().phases(*PHASES).step_time()


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

    def step(batch: Tensor) -> None:
        def closure() -> None:
            update(model(batch).square().mean())

        closure()
        optimizer.step(closure)
        optimizer.zero_grad()

    return judge_loop(model, step, STEPS, optimizer).steps().phases(*PHASES).step_time()


@program("findings", "a schedule whose Python takes 4 ms a step is named, and not the optimizer")
def slow_schedule() -> Judge:
    model = Chain(Sleep(2, 3, "first"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def factor(_step: int) -> float:
        rest(6)
        return 1.0

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    def step(batch: Tensor) -> None:
        train_step(model, optimizer, batch)
        schedule.step()

    return judge_loop(model, step, 100, optimizer).steps().verdict("optimizer", r"the schedule of the learning rate")


def agent(**more: Any) -> Any:
    """Return a critic and an actor, which the loop calls."""
    return Parts(lambda net, x: None, critic=Sleep(1, 1, "critic"), actor=Sleep(1, 1, "actor"), **more)


@program("steps", "soft actor-critic: the critic steps each iteration, actor and temperature twice each second one")
def soft_actor_critic() -> Judge:
    model = agent(log_alpha=weight())
    target = copy.deepcopy(model.critic)
    of_critic, of_actor, of_alpha = sgd(model.critic), sgd(model.actor), ClockedSGD([model.log_alpha])

    def step(batch: Tensor) -> None:
        with torch.no_grad():
            wanted = target(model.actor(batch))
        update((model.critic(batch) - wanted).square().mean(), of_critic)
        if len(CLOCK.steps) % 2:
            for _ in range(2):
                update(-model.critic(model.actor(batch)).mean(), of_actor)
                update((model.log_alpha.exp() * 0.1).sum(), of_alpha)

    return judge_loop(model, step, 200, [of_critic, of_actor, of_alpha]).steps(within=3)


@program("steps", "delayed policy updates: the critic steps each iteration, the actor each second one")
def delayed_policy_updates() -> Judge:
    model = agent()
    of_critic, of_actor = sgd(model.critic), sgd(model.actor)

    def step(batch: Tensor) -> None:
        update(model.critic(batch).square().mean(), of_critic)
        if len(CLOCK.steps) % 2:
            update(-model.critic(model.actor(batch)).mean(), of_actor)

    return judge_loop(model, step, 200, [of_critic, of_actor]).steps(within=2)


@program("steps", "an image is optimised through a frozen network in eval mode: the steps are found")
def optimised_image() -> Judge:
    model = Parts(lambda net, x: net.features(x), features=Sleep(3, 4)).eval().requires_grad_(False)
    image = torch.randn(8, 16, requires_grad=True)
    optimizer = torch.optim.SGD([image], lr=1e-3)

    def step(number: int) -> None:
        optimizer.zero_grad()
        update(model(image).square().mean())
        optimizer.step()

    judge = judge_loop(model, step, range(STEPS), optimizer)
    return judge.steps().phases("forward", "backward").step_time().excludes_nothing()


def train_on(make: Callable[[], Any]) -> Judge:
    """Train on inputs that are no tensor but hold eight samples."""

    def call(net: Any, batch: Any) -> Any:
        return net.body(torch.stack(list(batch["images"] if isinstance(batch, dict) else batch)))

    model = Parts(call, body=Sleep(2, 3, "body"))
    optimizer = sgd(model)
    judge = judge_loop(model, lambda number: train_step(model, optimizer, make()), range(STEPS), optimizer)
    judge.is_true("failures", not judge.summary.skipped, dict(judge.summary.skipped), "none")
    return judge.steps().phases(*PHASES).step_time().throughput(8, may_be_absent=True)


@program("steps", "dictionaries of lists as inputs")
def dictionary_of_lists() -> Judge:
    return train_on(lambda: {"images": [torch.randn(16) for _ in range(8)], "names": ["a"] * 8})


@program("steps", "generators as inputs: they are not consumed")
def generator_as_input() -> Judge:
    return train_on(lambda: (torch.randn(16) for _ in range(8)))


@program("throughput", "nested tensors as inputs: no failure, and the true rate or none")
def nested_inputs() -> Judge:
    model = Parts(lambda net, x: net.body(x.to_padded_tensor(0.0)), body=Sleep(2, 3, "body"))
    data = (torch.nested.nested_tensor([torch.randn(3, 16), torch.randn(5, 16)]) for _ in range(STEPS))
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), data, optimizer)
    judge.is_true("failures", not judge.summary.skipped, dict(judge.summary.skipped), "none")
    return judge.steps().phases(*PHASES).throughput(2, may_be_absent=True)
