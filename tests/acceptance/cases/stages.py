"""Programs that alternate stages: reinforcement learning, preferences, distillation, attacks, pseudo-labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import Layer, Root, Sleep, batches, clocked_steps, instrumented, judge_loop, rest, sgd, train_step, update
from ..registry import Program, add, program

ROUNDS, ACTIONS, UPDATES, SIZE = 12, 6, 8, 8


class Policy(Root):
    """A trunk and a head; ``generate`` asks the parts for one token after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = Sleep(2, 2, "trunk"), Sleep(1, 1, "head")

    def forward(self, x: Tensor) -> Any:
        return self.head(self.trunk(x))

    @torch.no_grad()
    def generate(self, x: Tensor) -> Any:
        for _ in range(ACTIONS):
            x = self.head(self.trunk(x))
        return x


@contextmanager
def stage(session: Any, name: str, *, named: bool) -> Iterator[None]:
    """Charge a block to a stage, of which the session is told where it is ``named``."""
    told: AbstractContextManager[Any] = session.stage(name) if named else nullcontext()
    with CLOCK.phase(EXCLUDED), CLOCK.named(name, "stage"), told:
        yield


def act(policy: Policy) -> None:
    """Play in an environment, each of whose steps takes 2 ms."""
    for state in batches(ACTIONS, size=1):
        policy(state)
        rest(2)


def generate(policy: Policy) -> None:
    """Write answers to a batch of prompts."""
    policy.generate(torch.randn(SIZE, 16))


def train_in_rounds(rollout: Any, *, evaluates: bool, scores: bool) -> Judge:
    """Roll out, score, and make eight updates on what came of it, in each of twelve rounds."""
    policy = Policy()
    session, optimizer = instrumented(policy)
    CLOCK.start()
    for _ in range(ROUNDS):
        policy.train(not evaluates)
        with stage(session, "rollout", named=not evaluates), torch.no_grad():
            rollout(policy)
            session.log(samples=ACTIONS)
        policy.train()
        if scores:
            with stage(session, "scoring", named=True):
                rest(12)
        for batch in batches(UPDATES, SIZE):
            train_step(policy, optimizer, batch)
            CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time().excluded().closes()
    judge.stage("rollout", ROUNDS, "rollout or validation" if evaluates else "rollout")
    return judge.stage("scoring", ROUNDS) if scores else judge


add(Program("ppo", "stages", "PPO: a rollout in eval mode, found without a name", partial(
    train_in_rounds, act, evaluates=True, scores=False)))  # fmt: skip
add(Program("ppo_with_names", "stages", "PPO: a rollout in train mode and scoring, both named", partial(
    train_in_rounds, act, evaluates=False, scores=True)))  # fmt: skip
add(Program("grpo", "stages", "GRPO: answers of generate() in eval mode, and scoring by name", partial(
    train_in_rounds, generate, evaluates=True, scores=True)))  # fmt: skip
add(Program("grpo_with_names", "stages", "GRPO: answers of generate() in train mode, named", partial(
    train_in_rounds, generate, evaluates=False, scores=True)))  # fmt: skip


@program("stages", "SAC: an action and an update in turn, two critics, a target that follows: all of it is the step")
def sac() -> Judge:
    model: Any = nn.ModuleDict({"actor": Layer(1, 2, "actor"), "one": Layer(1, 1, "one"), "two": Layer(1, 1, "two")})
    target = Sleep(1, 0, "target")
    critics = torch.optim.SGD([*model["one"].parameters(), *model["two"].parameters()], 1e-4)
    actor = sgd(model["actor"])

    def step(batch: Tensor) -> None:
        with torch.no_grad():
            model["actor"](batch[:1])
        rest(2)  # the environment
        with torch.no_grad():
            wanted = target(model["actor"](batch))
        values = model["one"](batch), model["two"](batch)
        with CLOCK.phase("backward"):
            sum((value - wanted).square().mean() for value in values).backward()  # type: ignore[union-attr]
        with CLOCK.phase("optimizer"):
            critics.step()
            critics.zero_grad()
        update(-model["one"](model["actor"](batch)).mean(), actor)
        with torch.no_grad():
            for mine, theirs in zip(target.parameters(), model["one"].parameters(), strict=True):
                mine.lerp_(theirs, 0.01)

    judge = judge_loop(model, step, 60, [critics, actor]).steps().phases("backward").step_time()
    return judge.row("actor", "forward").row("one", "backward").excludes_nothing().closes()


def prefer(*, evaluates: bool) -> Judge:
    """Train a policy beside a frozen reference, which no session knows."""
    policy = Policy()
    reference = nn.Sequential(Sleep(2, 0, "anchor"), Sleep(1, 0, "end")).requires_grad_(False)
    reference.train(not evaluates)
    session, optimizer = instrumented(policy)
    for batch in clocked_steps(batches(60)):
        with torch.no_grad():
            anchor = reference(batch)
        better, worse = policy(batch).chunk(2)
        update(-torch.nn.functional.logsigmoid(better - worse + anchor.mean()).mean(), optimizer)
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time()
    return judge.row("trunk", "forward").excludes_nothing().closes()


add(Program("dpo", "stages", "DPO: a reference model in eval mode is in each step, in no phase of the policy", partial(
    prefer, evaluates=True)))  # fmt: skip
add(Program("dpo_in_train_mode", "stages", "DPO: the same with a reference model in train mode", partial(
    prefer, evaluates=False)))  # fmt: skip


@program("stages", "TRADES: an attack in eval mode, with gradients of the input, is a part of each step")
def trades() -> Judge:
    model = Policy()
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(60)):
        model.eval()
        attacked = batch + 0.001 * torch.randn_like(batch)
        for _ in range(2):
            attacked.requires_grad_()
            difference = (model(attacked) - batch).square().sum()
            with CLOCK.phase("backward"):
                [gradient] = torch.autograd.grad(difference, [attacked])
            attacked = (attacked + 0.01 * gradient.sign()).detach()
        model.train()
        update(model(batch).square().mean() + model(attacked).square().mean(), optimizer)
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time()
    return judge.row("trunk", "forward").row("trunk", "backward").excludes_nothing().closes()


def label(*, named: bool) -> Judge:
    """Label other batches by the model itself before every eighth step, and train on both kinds."""
    model = Policy()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for number in range(80):
        if number % 8 == 0:
            model.train(named)
            with stage(session, "pseudo-labels", named=named), torch.no_grad():
                for other in batches(4):
                    model(other)
            model.train()
        for batch in batches(1):
            train_step(model, optimizer, batch)
            CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time().excluded().closes()
    return judge.stage("pseudo-labels", 10, "pseudo-labels" if named else "rollout or validation")


add(Program("pseudo_labels_between_steps", "stages", "pseudo-labels made in eval mode, found without a name", partial(
    label, named=False)))  # fmt: skip
add(Program("pseudo_labels_with_a_name", "stages", "pseudo-labels made in train mode, named", partial(
    label, named=True)))  # fmt: skip


@program("stages", "distillation: a teacher that no session knows, and its targets for the next twelve batches by name")
def distillation_in_rounds() -> Judge:
    student, teacher = Policy(), nn.Sequential(Sleep(3, 0, "teacher")).requires_grad_(False)
    session, optimizer = instrumented(student)
    CLOCK.start()
    for _ in range(6):
        with stage(session, "teacher", named=True), torch.no_grad():
            targets = [(batch, teacher(batch)) for batch in batches(12)]
        for batch, target in targets:
            update((student(batch) - target).square().mean(), optimizer)
            CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time().excluded()
    return judge.stage("teacher", 6).closes()
