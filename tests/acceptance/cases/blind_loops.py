"""Loops that people write, by an author who has not read how autoprof finds steps."""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
import socket
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from statistics import fmean
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader, IterableDataset

import autoprof
from autoprof import Phase

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import (
    Chain,
    Layer,
    Parts,
    Root,
    Sleep,
    SlowSamples,
    batches,
    clocked_steps,
    evaluated,
    instrumented,
    judge_loop,
    loader_of,
    rest,
    sgd,
    train,
    train_step,
    two_layers,
    update,
    validate,
)
from ..registry import program

STEPS: Final = 80
PHASES: Final = ("forward", "backward", "optimizer")


def one_of(judge: Judge, *truths: int) -> Judge:
    """Compare the number of steps where people count in more than one way."""
    for truth in truths:
        judge.steps(truth, within=2)
        if judge.checks[-1].verdict == "right":
            return judge
        judge.checks.pop()
    return judge.steps(truths[0], within=2)


def shares(judge: Judge, *names: str) -> Judge:
    """Compare the share of phases in all steps, which does not depend on how steps are counted."""
    steps = CLOCK.steps[5:]
    for name in names:
        truth = sum(s.phases.get(name, 0) for s in steps) / sum(s.step_ns for s in steps)
        reported = judge.summary.phases.get(Phase(name), 0) / max(judge.summary.total_step_ns, 1)
        right = abs(truth - reported) <= 0.04
        judge.add(f"share of {name}", f"{truth:.0%}", f"{reported:.0%}", right, f"{reported - truth:+.0%}", soft=True)
    return judge


def together(judge: Judge, *names: str) -> Judge:
    """Compare the sum of phases, where it is open to which of them some time belongs."""
    truth = fmean(sum(step.phases.get(name, 0) for name in names) for step in judge.counted)
    reported = sum(judge.summary.phases.get(Phase(name), 0) for name in names) / max(judge.summary.steps, 1)
    return judge.time(" + ".join(names), truth, reported)


def gradients(loss: Tensor, of: Iterable[Tensor], **options: Any) -> tuple[Tensor, ...]:
    """Return gradients by ``torch.autograd.grad``, charged to the backward."""
    with CLOCK.phase("backward"):
        return torch.autograd.grad(loss, tuple(of), **options)


def trunk_and_heads(*heads: str) -> Any:
    """Return a dictionary of a trunk and heads that the loop calls one by one."""
    return nn.ModuleDict({"trunk": Layer(2, 2, "trunk")} | {name: Layer(1, 1, name) for name in heads})


# optimizers


@program("steps", "warm restarts: a new Adam every 20 steps, and none of them is named to instrument")
def new_optimizer_each_restart() -> Judge:
    model = two_layers()
    session = autoprof.instrument(model)
    for number, batch in enumerate(clocked_steps(batches(100))):
        if number % 20 == 0:
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        update(model(batch).mean())
        with CLOCK.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()
    return Judge(session).steps().phases(*PHASES).step_time().closes()


@program("steps", "a physics-informed network: 60 steps of Adam, then 20 of LBFGS with closures")
def adam_then_lbfgs() -> Judge:
    model = Chain(Sleep(1, 2, "field"))
    adam = torch.optim.Adam(model.parameters(), lr=1e-4)
    session = autoprof.instrument(model, optimizer=adam)
    lbfgs = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=3, tolerance_grad=0.0, tolerance_change=0.0)
    points = torch.randn(8, 16)

    def closure() -> Any:
        lbfgs.zero_grad()
        loss = model(points).square().mean()
        with CLOCK.phase("backward"):
            loss.backward()
        return loss

    for number, batch in enumerate(clocked_steps(batches(80))):
        if number < 60:
            update(model(batch).square().mean(), adam)
        else:
            lbfgs.step(closure)  # type: ignore[no-untyped-call]
    return Judge(session).steps().phases("forward", "backward").step_time()


@program("steps", "LBFGS with a line search, whose closure adds up the gradients of three mini-batches")
def lbfgs_over_mini_batches() -> Judge:
    model = Chain(Sleep(1, 1, "layer"))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=2, max_eval=4, line_search_fn="strong_wolfe")
    session = autoprof.instrument(model, optimizer=optimizer)
    for batch in clocked_steps(batches(STEPS, 24)):

        def closure(batch: Tensor = batch) -> Any:
            optimizer.zero_grad()
            total = torch.zeros(())
            for part in batch.chunk(3):
                loss = (model(part) - 1).square().mean() / 3
                update(loss)
                total += loss.detach()
            return total

        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return Judge(session).steps().phases("forward", "backward").step_time()


@program("steps", "one optimizer for two models, of which one is instrumented")
def one_optimizer_for_two_models() -> Judge:
    encoder = Parts(lambda net, x: net.layer(x), layer=Sleep(2, 2, "encoder"))
    decoder = Sleep(1, 2, "decoder")
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=1e-4)
    judge = judge_loop(encoder, lambda x: update(decoder(encoder(x)).mean(), optimizer), STEPS, optimizer)
    return judge.steps().step_time().row(r"(.*\.)?layer", "forward", "encoder").excludes_nothing()


@program("steps", "block coordinate descent: three named optimizers by turns; a step has one turn of each, as of a GAN")
def block_coordinate_descent() -> Judge:
    model = Chain(Sleep(1, 1, "first"), Sleep(1, 1, "second"), Sleep(1, 1, "third"))
    optimizers = [sgd(part) for part in model]
    turn = itertools.cycle(optimizers)
    judge = judge_loop(model, lambda batch: train_step(model, next(turn), batch), 90, optimizers)
    return judge.steps(30)


@program("steps", "two tasks by turns with one optimizer and a head each: each update is a step")
def tasks_by_turns() -> Judge:
    model = trunk_and_heads("first", "second")
    optimizer = sgd(model)
    turn = itertools.cycle(["first", "second"])
    judge = judge_loop(model, lambda x: update(model[next(turn)](model["trunk"](x)).mean(), optimizer), 100, optimizer)
    return judge.steps().phases(*PHASES).step_time().throughput(8, may_be_absent=True)


@program("steps", "optimizers per parameter stepped in backward, but in each second backward only")
def accumulation_with_optimizers_in_backward() -> Judge:
    model = two_layers()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=1e-4) for parameter in model.parameters()}
    number = 0

    def apply(parameter: Tensor) -> None:
        if number % 2 == 0:
            optimizers[parameter].step()  # type: ignore[index]
            optimizers[parameter].zero_grad()  # type: ignore[index]

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(apply)  # type: ignore[no-untyped-call]
    session = autoprof.instrument(model)
    CLOCK.start()
    for batch in batches(160):
        number += 1
        update(model(batch).mean() / 2)
        if number % 2 == 0:
            CLOCK.step()
    return Judge(session).steps().phases("forward").step_time()


class LocalLayers(Root):
    """Layers that are trained within the forward, each by a loss and an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Sleep(1, 2, "layer") for _ in range(3))
        self.optimizers = [sgd(layer) for layer in self.layers]

    def forward(self, x: Tensor) -> Tensor:
        for layer, optimizer in zip(self.layers, self.optimizers, strict=True):
            x = layer(x.detach())
            update(x.square().mean(), optimizer)
        return x.detach()


@program("steps", "the forward-forward algorithm: backward and optimizer of each layer run inside the model's forward")
def trained_inside_the_forward() -> Judge:
    model = LocalLayers()
    return judge_loop(model, model, STEPS, model.optimizers).steps().phases(*PHASES).step_time().closes()


@program("steps", "a loop that begins with the optimizer's step of the batch before")
def optimizer_first() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        optimizer.step()
        optimizer.zero_grad()
        update(model(batch).mean())
    return Judge(session).steps().phases(*PHASES).step_time()


@program("steps", "a GAN with three critic updates on batches of their own for each one of the generator, shared trunk")
def three_critic_updates() -> Judge:
    model = trunk_and_heads("critic", "generator")
    of_critic, of_generator = sgd(model["critic"]), sgd(model["generator"])
    session = autoprof.instrument(model, optimizer=[of_critic, of_generator])
    for batch in clocked_steps(batches(60, 24)):
        for part in batch.chunk(3):
            with torch.no_grad():
                features = model["trunk"](part)
                fake = model["generator"](features)
            update(model["critic"](fake).mean() - model["critic"](features).mean(), of_critic)
        update(-model["critic"](model["generator"](model["trunk"](part))).mean(), of_generator)
    judge = Judge(session)
    return shares(one_of(judge, 60, 180, 240), "forward", "backward").excludes_nothing().silent("unattributed")


@program("steps", "Reptile: a copy of the model is trained by an optimizer of its own, then the model moves towards it")
def reptile() -> Judge:
    model = Chain(Sleep(1, 1, "layer"))
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        inner = copy.deepcopy(model)
        of_inner = torch.optim.SGD(inner.parameters(), lr=1e-3)
        for part in batch.chunk(3):
            inner(part).square().mean().backward()
            of_inner.step()
            of_inner.zero_grad()
        for parameter, moved in zip(model.parameters(), inner.parameters(), strict=True):
            parameter.grad = parameter.detach() - moved.detach()
        optimizer.step()
        optimizer.zero_grad()

    return judge_loop(model, step, batches(STEPS, 24), optimizer).steps().step_time().excludes_nothing()


@program("steps", "MAML: two tasks with two inner steps each by functional_call and create_graph, one outer update")
def model_agnostic_meta_learning() -> Judge:
    model = Chain(Sleep(1, 1, "layer"))
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        outer = torch.zeros(())
        for task in batch.chunk(2):
            weights: dict[str, Tensor] = dict(model.named_parameters())
            for _ in range(2):
                loss = functional_call(model, weights, (task,)).square().mean()
                found = gradients(loss, weights.values(), create_graph=True)
                weights = {key: one - 1e-3 * change for (key, one), change in zip(weights.items(), found, strict=True)}
            outer = outer + functional_call(model, weights, (task,)).square().mean()
        update(outer, optimizer)

    return judge_loop(model, step, 60, optimizer).steps().phases(*PHASES).step_time().excludes_nothing()


@program("steps", "JAX-like: torch.func.grad of a pure loss, weights in a dictionary, and session.step()")
def gradients_by_torch_func() -> Judge:
    class Slow(Root):
        """A linear model whose forward sleeps."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            rest(4)
            return self.linear(x)

    model = Slow()
    session = autoprof.instrument(model)
    weights = {key: one.detach().clone() for key, one in model.named_parameters()}
    slope = torch.func.grad(lambda weights, x: functional_call(model, weights, (x,)).square().mean())
    for batch in clocked_steps(batches(STEPS)):
        weights = {key: weights[key] - 1e-3 * change for key, change in slope(weights, batch).items()}
        session.step()
    return Judge(session).steps().phases("forward").step_time().excludes_nothing()


# backward passes


@program("throughput", "three losses of one forward, each with a backward that keeps the graph: no micro-batches")
def three_backwards_of_one_forward() -> Judge:
    model = trunk_and_heads("a", "b", "c")
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        features = model["trunk"](batch)
        losses = [model[name](features).square().mean() for name in "abc"]
        for loss in losses:
            with CLOCK.phase("backward"):
                loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()

    judge = (
        judge_loop(model, step, STEPS, optimizer).steps().phases(*PHASES).step_time().throughput(8, may_be_absent=True)
    )
    return judge.is_true("micro-batches", judge.summary.micro_steps in (0, 1, None), judge.summary.micro_steps, "1")


@program("throughput", "gradient surgery: a gradient for each of two tasks by autograd.grad, mixed and set by hand")
def gradient_surgery() -> Judge:
    model = Parts(lambda net, x: (net.a(h := net.trunk(x)), net.b(h)), trunk=Sleep(2, 2), a=Sleep(1, 1), b=Sleep(1, 1))
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        mixed: dict[Tensor, Tensor] = {}
        for output in model(batch):
            found = gradients(output.mean(), model.parameters(), retain_graph=True, allow_unused=True)
            for parameter, one in zip(model.parameters(), found, strict=True):
                if one is not None:
                    mixed[parameter] = mixed[parameter] + one if parameter in mixed else one
        for parameter, one in mixed.items():
            parameter.grad = one
        optimizer.step()
        optimizer.zero_grad()

    return (
        judge_loop(model, step, STEPS, optimizer).steps().phases(*PHASES).step_time().throughput(8, may_be_absent=True)
    )


@program("throughput", "a pipeline: the forwards of four micro-batches come first, then their four backwards")
def forwards_before_backwards() -> Judge:
    model = Chain(Sleep(1, 2, "layer"))
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        outputs = [model(part) for part in batch.chunk(4)]
        for output in outputs:
            update(output.mean() / 4)
        optimizer.step()
        optimizer.zero_grad()

    judge = judge_loop(model, step, batches(STEPS, 32), optimizer)
    return judge.steps().phases(*PHASES).step_time().throughput(32, may_be_absent=True)


@program("steps", "gradient accumulation until a budget of samples is full: one to five micro-batches a step")
def uneven_accumulation() -> Judge:
    model, draw = Chain(Sleep(1, 1, "layer")), random.Random(1)
    session, optimizer = instrumented(model)
    counts = [draw.randint(1, 5) for _ in range(STEPS)]
    CLOCK.start()
    for count in counts:
        for batch in batches(count):
            update(model(batch).mean() / count)
        optimizer.step()
        optimizer.zero_grad()
        CLOCK.step()
    judge = Judge(session).steps().phases(*PHASES).step_time().silent("jitter")
    return judge.throughput([8.0 * count for count in counts], may_be_absent=True)


@program("steps", "accumulation over four of ten batches an epoch: the two that are left make a step too")
def rest_of_an_epoch() -> Judge:
    model = Chain(Sleep(1, 1, "layer"))
    session, optimizer = instrumented(model)
    CLOCK.start()
    for _ in range(27):
        for number, (batch,) in enumerate(loader_of(10), 1):
            update(model(batch).mean() / 4)
            if number % 4 == 0 or number == 10:
                optimizer.step()
                optimizer.zero_grad()
                CLOCK.step()
    return Judge(session).steps().phases(*PHASES).step_time(relative=0.07)


@program("steps", "losses that are no number: each fifth batch has a forward and neither backward nor update")
def batches_without_backward() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for number, batch in enumerate(batches(100)):
        loss = model(batch).mean() * (float("nan") if number % 5 == 0 else 1)
        if not torch.isfinite(loss):
            optimizer.zero_grad()
            continue
        update(loss, optimizer)
        CLOCK.step()
    return shares(one_of(Judge(session), 80, 100), "forward", "backward").excludes_nothing()


@program("steps", "broken samples: the second layer raises in each seventh forward, and the loop goes on")
def exceptions_in_the_forward() -> Judge:
    class Strict(Root):
        """A model that refuses negative samples after its first layer."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Sleep(2, 2, "first"), Sleep(1, 2, "second")

        def forward(self, x: Tensor) -> Any:
            x = self.first(x)
            if x.min() < -100:
                raise ValueError("a broken sample")
            return self.second(x)

    model = Strict()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for number, batch in enumerate(batches(98)):
        with suppress(ValueError):
            train_step(model, optimizer, batch - 1000 * (number % 7 == 3))
            CLOCK.step()
    return shares(one_of(Judge(session), 84, 98), "forward", "backward").excludes_nothing().closes()


# forwards without gradients inside and between the steps


@program("excluded", "pseudo-labels: each step asks the same model in eval mode without gradients, then trains on it")
def pseudo_labels() -> Judge:
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        model.eval()
        with torch.no_grad():
            labels = model(batch)
        model.train()
        update((model(batch) - labels).square().mean(), optimizer)

    judge = judge_loop(model, step, STEPS, optimizer).steps().phases("forward", "backward").step_time()
    excluded_ns = sum(one.total_ns for one in judge.summary.stages)
    return judge.is_true("excluded", excluded_ns < 30e6, f"{excluded_ns / 1e6:.1f} ms", "the first one").silent(
        "excluded"
    )


@program("excluded", "scheduled sampling: three forwards without gradients in train mode make the input of each step")
def scheduled_sampling() -> Judge:
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        with torch.no_grad():
            for _ in range(3):
                batch = model(batch)
        update(model(batch).mean(), optimizer)

    judge = judge_loop(model, step, STEPS, optimizer).steps().phases("forward", "backward").step_time()
    return judge.excludes_nothing().throughput(8, may_be_absent=True)


@program("excluded", "contrastive learning with a momentum encoder that runs and moves without gradients in each step")
def momentum_encoder() -> Judge:
    def call(net: Any, query: Tensor, key: Tensor) -> Any:
        with torch.no_grad():
            for slow, fast in zip(net.key.parameters(), net.query.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
            keys = net.key(key)
        return net.query(query) @ keys.T

    key = Sleep(3, 0, "key").requires_grad_(False)
    model = Parts(call, query=Sleep(3, 3, "query"), key=key)
    optimizer = sgd(model.query)  # type: ignore[arg-type]
    step: Callable[[Tensor], None] = lambda batch: update(model(batch, batch + 1).mean(), optimizer)  # noqa: E731
    judge = (
        judge_loop(model, step, STEPS, optimizer).steps().phases(*PHASES).step_time().throughput(8, may_be_absent=True)
    )
    for name in ("key", "query"):
        judge.row(rf"(.*\.)?{name}", "forward", name)
    return judge.excludes_nothing()


@program("excluded", "a frozen teacher of the student's class in eval mode, outside of the instrumented model")
def teacher_of_the_same_class() -> Judge:
    student, teacher = two_layers(), nn.Sequential(Sleep(2, 0, "teacher")).requires_grad_(False).eval()
    optimizer = sgd(student)

    def step(batch: Tensor) -> None:
        with torch.no_grad():
            target = teacher(batch)
        update((student(batch) - target).square().mean(), optimizer)

    judge = judge_loop(student, step, STEPS, optimizer).steps().phases("backward").step_time()
    return judge.excludes_nothing().silent("excluded", "data-wait")


@program("excluded", "Q-learning: 30 random actions first, then an update for every four single actions")
def q_learning() -> Judge:
    policy = Chain(Sleep(1, 2, "policy"))
    target = Sleep(1, 0, "target").requires_grad_(False)
    session, optimizer = instrumented(policy)

    def act(count: int) -> None:
        for state in batches(count, 1):
            with torch.no_grad():
                policy(state)
            rest(0.5)

    CLOCK.start()
    act(30)
    for batch in batches(STEPS):
        act(4)
        with torch.no_grad():
            aim = target(batch)
        update((policy(batch) - aim).square().mean(), optimizer)
        CLOCK.step()
    return Judge(session).steps().phases("backward").step_time().silent("excluded")


@program("excluded", "validation from a loader under no_grad without eval(), in the middle and at the end of epochs")
def validation_without_eval() -> Judge:
    model, held_out = two_layers(), loader_of(6)
    session, optimizer = instrumented(model)
    CLOCK.start()
    for _ in range(2):
        for number, (batch,) in enumerate(loader_of(40), 1):
            train_step(model, optimizer, batch)
            if number % 20 == 0:
                with CLOCK.phase(EXCLUDED), torch.no_grad():
                    for (other,) in held_out:
                        model(other)
            CLOCK.step()
    return Judge(session).steps().phases("forward", "backward").step_time().excluded(0.1).closes()


@program("excluded", "each epoch begins with a validation in eval mode, the first one too")
def validation_at_the_start_of_epochs() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for _ in range(4):
        validate(model, 12)
        for batch in batches(25):
            train_step(model, optimizer, batch)
            CLOCK.step()
    return Judge(session).steps().phases("forward", "backward").step_time().excluded(0.1)


@program("excluded", "validation by another instance that shares the parameters, from a loader under no_grad")
def validation_by_another_instance() -> Judge:
    model, other = two_layers(), two_layers().eval()
    for mine, theirs in zip(model, other, strict=True):
        theirs.weight = mine.weight
    held_out = loader_of(8)
    session, optimizer = instrumented(model)
    for number, (batch,) in enumerate(clocked_steps(loader_of(STEPS)), 1):
        train_step(model, optimizer, batch)
        if number % 20 == 0:
            with CLOCK.phase(EXCLUDED), torch.no_grad():
                for (one,) in held_out:
                    other(one)
    return Judge(session).steps().phases("forward", "backward").step_time().excluded(0.1)


@program("excluded", "the robustness is tested each twentieth step: attacks by autograd.grad in eval mode")
def validation_with_attacks() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    for number, batch in enumerate(clocked_steps(batches(100)), 1):
        train_step(model, optimizer, batch)
        if number % 20 == 0:
            with evaluated(model):
                for one in batches(4):
                    one.requires_grad_()
                    (slope,) = torch.autograd.grad(model(one).mean(), one)
                    with torch.no_grad():
                        model(one + slope.sign())
    return Judge(session).steps().phases("forward", "backward").step_time().excluded(0.1)


@program("excluded", "statistics of batch normalisation are renewed by update_bn each twentieth step, in train mode")
def renewed_statistics() -> Judge:
    model = Chain(Sleep(2, 3, "first"), nn.BatchNorm1d(16), Sleep(1, 1, "second"))
    data = loader_of(8)
    session, optimizer = instrumented(model)
    for number, (batch,) in enumerate(clocked_steps(loader_of(STEPS)), 1):
        train_step(model, optimizer, batch)
        if number % 20 == 0:
            with CLOCK.phase(EXCLUDED):
                torch.optim.swa_utils.update_bn(data, model)
    return Judge(session).steps().phases("forward", "backward").step_time().excluded(0.1)


@program("excluded", "early stopping: the best weights are loaded again after a validation, with a new optimizer")
def early_stopping_with_restarts() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    best: Any = None
    CLOCK.start()
    for epoch in range(6):
        for batch in batches(15):
            train_step(model, optimizer, batch)
            CLOCK.step()
        validate(model, 5)
        if epoch % 3 == 2:
            model.load_state_dict(best)
            optimizer = sgd(model)
        else:
            best = copy.deepcopy(model.state_dict())
    CLOCK.step()  # the last validation
    return Judge(session).steps().phases(*PHASES).step_time().excluded(0.1)


@program("excluded", "a linear probe: all features are computed once in eval mode, then the head is trained")
def linear_probe() -> Judge:
    model = Parts(lambda net, x: net.head(net.trunk(x)), trunk=Layer(4, 0, "trunk"), head=Layer(3, 3, "head"))
    model.trunk.requires_grad_(False)  # type: ignore[operator]
    optimizer = sgd(model.head)  # type: ignore[arg-type]
    session = autoprof.instrument(model, optimizer=optimizer)
    model.eval()
    with torch.no_grad():
        features = [model.trunk(batch) for (batch,) in loader_of(20)]  # type: ignore[operator]
    model.train()
    for batch in clocked_steps(features * 4):
        update(model.head(batch).mean(), optimizer)  # type: ignore[operator]
    judge = Judge(session).steps().phases(*PHASES).step_time().row(r"(.*\.)?head", "forward", "head")
    return judge.silent("excluded", "data-wait", "unattributed")


# loaders


class Progress:
    """A progress bar around an iterable, as of tqdm."""

    def __init__(self, items: Any) -> None:
        self.items, self.shown = items, 0

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            yield item
            self.shown += 1
            if self.shown % 10 == 0:
                print(f"\r{self.shown}/{len(self)}", end="", flush=True)


@program("steps", "a slow loader inside a progress bar inside enumerate")
def progress_bar() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    data = Progress(SlowSamples(8 * STEPS, 0.6).loader())
    judge = judge_loop(model, lambda item: train_step(model, optimizer, item[1]), enumerate(data), optimizer)
    return judge.steps().phases(*PHASES, "data").step_time().throughput(8, may_be_absent=True).finds("data-wait")


@program("steps", "three loaders, of which each step draws one by chance")
def loaders_by_chance() -> Judge:
    model, draw = two_layers(), random.Random(2)
    session, optimizer = instrumented(model)
    sources = [iter(SlowSamples(800, ms).loader()) for ms in (0.2, 0.6, 1.0)]
    CLOCK.start()
    for _ in range(90):
        train_step(model, optimizer, next(draw.choice(sources)))
        CLOCK.step()
    return (
        Judge(session).steps().phases(*PHASES, "data").step_time().throughput(8, may_be_absent=True).finds("data-wait")
    )


class Stream(IterableDataset[Tensor]):
    """A stream of whole batches, each of which takes 4 ms to read."""

    def __iter__(self) -> Iterator[Tensor]:
        for batch in batches(STEPS, 12):
            with CLOCK.phase("data"):
                rest(4)
            yield batch


@program("throughput", "an IterableDataset that makes whole batches, with batch_size=None")
def stream_of_batches() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    data = DataLoader(Stream(), batch_size=None)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), data, optimizer)
    return judge.steps().phases(*PHASES, "data").step_time().throughput(12, may_be_absent=True).finds("data-wait")


def _prefetch(ms: float) -> Judge:
    """Train on batches that a future makes during the step before."""
    model = two_layers()
    session, optimizer = instrumented(model)

    def read() -> Tensor:
        rest(ms)
        return torch.randn(8, 16)

    def ahead(pool: ThreadPoolExecutor) -> Iterator[Tensor]:
        coming = pool.submit(read)
        for _ in range(STEPS):
            with CLOCK.phase("data"):
                batch = coming.result()
            coming = pool.submit(read)
            yield batch

    with ThreadPoolExecutor(1) as pool:
        for batch in clocked_steps(session.loader(ahead(pool))):
            train_step(model, optimizer, batch)
    return Judge(session).steps().phases(*PHASES, "data").step_time()


@program("findings", "batches by a future that takes longer than a step: the wait is found")
def future_that_lags() -> Judge:
    return _prefetch(15).finds("data-wait")


@program("findings", "healthy: batches by a future that is ready in time")
def future_in_time() -> Judge:
    return _prefetch(2).silent("data-wait", "unattributed")


@program("throughput", "a model that makes its own data in forward() and gets none: no rate is invented")
def data_made_in_the_forward() -> Judge:
    model = Parts(lambda net: net.field(torch.randn(64, 16)), field=Sleep(3, 4, "field"))
    optimizer = sgd(model)
    judge = judge_loop(model, lambda _: update(model().mean(), optimizer), range(STEPS), optimizer)
    return judge.steps().phases(*PHASES).step_time().throughput(None).silent("data-wait", "unattributed")


# the shape of the program


@program("steps", "autocast, record_function and a context of one's own around each step, by an ExitStack")
def contexts_around_steps() -> Judge:
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        with ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
            stack.enter_context(torch.profiler.record_function("step"))
            stack.enter_context(torch.enable_grad())
            train_step(model, optimizer, batch)

    judge = judge_loop(model, step, STEPS, optimizer).steps().phases(*PHASES).step_time()
    return judge.silent("debug-mode", "unattributed", "data-wait")


class Engine:
    """A loop that knows events only; forward, update and validation are handlers, as in Ignite or Catalyst."""

    def __init__(self) -> None:
        self.handlers: dict[str, list[Callable[[Engine], None]]] = defaultdict(list)
        self.batch: Any = None
        self.loss: Any = None

    def on(self, event: str) -> Callable[[Callable[[Engine], None]], None]:
        return lambda handler: self.handlers[event].append(handler)

    def fire(self, event: str) -> None:
        for handler in self.handlers[event]:
            handler(self)

    def run(self, epochs: int, length: int) -> None:
        CLOCK.start()
        for _ in range(epochs):
            for (self.batch,) in loader_of(length):
                self.fire("iteration")
                self.fire("iteration completed")
                CLOCK.step()
            self.fire("epoch completed")


@program("steps", "an engine of events: forward, update and validation are handlers of callbacks")
def engine_of_events() -> Judge:
    model, engine = two_layers(), Engine()
    session, optimizer = instrumented(model)

    @engine.on("iteration")
    def compute(engine: Engine) -> None:
        engine.loss = model(engine.batch).mean()

    @engine.on("iteration completed")
    def learn(engine: Engine) -> None:
        update(engine.loss, optimizer)

    @engine.on("epoch completed")
    def check(engine: Engine) -> None:
        validate(model)

    engine.run(4, 25)
    CLOCK.step()  # the last validation
    return Judge(session).steps().phases(*PHASES).step_time(relative=0.07).excluded(0.1)


@program("steps", "training in a coroutine that awaits its batches")
def training_in_a_coroutine() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)

    async def source() -> AsyncIterator[Tensor]:
        for batch in batches(STEPS):
            await asyncio.sleep(0.002)
            yield batch

    async def run() -> None:
        CLOCK.start()
        async for batch in source():
            train_step(model, optimizer, batch)
            CLOCK.step()

    asyncio.run(run())
    return Judge(session).steps().phases(*PHASES).step_time().excludes_nothing()


@program("steps", "three trials of a search, each with its own model and session, in one process")
def three_trials() -> Judge:
    judges = []
    for _ in range(3):
        model = two_layers()
        session, optimizer = instrumented(model)
        train(model, optimizer, 60)
        judges.append(Judge(session).steps().phases(*PHASES).step_time())
    judges[-1].checks = [check for judge in judges for check in judge.checks]
    return judges[-1]


@program("steps", "Ctrl-C in the middle of the seventieth step, caught outside the block of the session")
def interrupted() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    with suppress(KeyboardInterrupt), autoprof.instrument(model, optimizer=optimizer) as session:
        for number, batch in enumerate(clocked_steps(batches(100)), 1):
            if number == 70:
                model(batch)
                raise KeyboardInterrupt
            train_step(model, optimizer, batch)
    return Judge(session).steps().phases(*PHASES).step_time().closes()


@program("steps", "pretraining with one head, then finetuning with another head and a new optimizer, in one session")
def two_stages() -> Judge:
    model = trunk_and_heads("pretext", "task")
    session = autoprof.instrument(model)
    CLOCK.start()
    for head in ("pretext", "task"):
        optimizer = torch.optim.SGD([*model["trunk"].parameters(), *model[head].parameters()], lr=1e-4)
        for batch in batches(50):
            update(model[head](model["trunk"](batch)).mean(), optimizer)
            CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward").step_time().named(r"(.*\.)?trunk")
    return judge.named(r"(.*\.)?task").named(r"(.*\.)?pretext")


class _Batch:
    def __init__(self, owner: _Epoch, data: Tensor) -> None:
        self.owner, self.data = owner, data

    def __call__(self) -> None:
        self.backward(self.owner.run["net"](self.data).mean())

    def backward(self, loss: Tensor) -> None:
        update(loss, self.owner.run["optimizer"])


class _Epoch:
    def __init__(self, run: dict[str, Any]) -> None:
        self.run = run

    def __enter__(self) -> _Epoch:
        self.run["net"].train()
        return self

    def __exit__(self, *_: object) -> None:
        validate(self.run["net"], 3)


@program("steps", "classes in classes: the epoch is a context that validates when it ends, the batch is callable")
def epochs_as_contexts() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for _ in range(4):
        with _Epoch({"net": model, "optimizer": optimizer}) as epoch:
            for batch in map(lambda data: _Batch(epoch, data), batches(20)):  # noqa: C417
                batch()
                CLOCK.step()
    CLOCK.step()  # the last validation
    return Judge(session).steps().phases(*PHASES).step_time().excluded(0.1)


# unmistakable causes


def post_metrics(port: int, text: str) -> None:
    """Send a line to a server and wait for its answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(text.encode())
        connection.recv(16)


@program("findings", "metrics are posted to a server in every step, which takes 12 ms to answer: the line is named")
def metrics_posted_each_step() -> Judge:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1024)
                    rest(12)
                    connection.sendall(b"ok")

    threading.Thread(target=serve, daemon=True).start()
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        train_step(model, optimizer, batch)
        post_metrics(server.getsockname()[1], "loss 1.0")

    judge = judge_loop(model, step, 120, optimizer)
    server.close()
    return judge.steps().phases("forward", "backward", "other").verdict(("unattributed", "logging"), "post_metrics")


@program("findings", "gradients are checked in Python by a hook of every parameter: the backward is whole")
def gradient_hooks() -> Judge:
    model = two_layers()
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: rest(2))
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), STEPS, optimizer)
    return judge.steps().phases(*PHASES).step_time().silent("unattributed", "optimizer")
