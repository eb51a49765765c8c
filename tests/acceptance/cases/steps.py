"""Loops of every kind, without a call of ``session.step()``: the number of steps is found."""

import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import autoprof

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import (
    Chain,
    Layer,
    Parts,
    Sleep,
    batches,
    clocked_steps,
    instrumented,
    judge_loop,
    judge_plain,
    loader_of,
    rest,
    sgd,
    train,
    train_step,
    two_layers,
    update,
)
from ..registry import program

STEPS = 60
PHASES = ("forward", "backward", "optimizer")


def body() -> nn.Sequential:
    """Return two layers that are part of a model, or a model that is not called as a whole."""
    return nn.Sequential(Layer(2, 3, "first"), Layer(1, 2, "second"))


@program("steps", "the plainest loop")
def plain_loop() -> Judge:
    model = two_layers()
    return judge_plain(model, STEPS).steps().phases(*PHASES, "other").step_time().closes()


@program("steps", "the plainest loop, without naming the optimizer")
def plain_loop_without_optimizer() -> Judge:
    model = two_layers()
    session = autoprof.instrument(model)
    train(model, sgd(model), STEPS)
    return Judge(session).steps().phases(*PHASES).step_time()


@program("steps", "model.forward(x) in place of model(x)")
def forward_called_directly() -> Judge:
    model: Any = body()
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: update(model.forward(batch).mean(), optimizer), STEPS, optimizer)
    return judge.steps().phases(*PHASES).step_time()


class Lightning(Parts):
    """A module whose training_step calls the module itself or its network, as in Lightning."""

    def training_step(self, batch: Tensor) -> Any:
        return (self if self.calls_itself else self.net)(batch).mean()


def _train_by_method(net: nn.Module, calls_itself: bool) -> Judge:
    model = Lightning(lambda model, x: model.net(x), net=net, calls_itself=calls_itself)
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: update(model.training_step(batch), optimizer), STEPS, optimizer)
    return judge.steps().phases(*PHASES).step_time()


@program("steps", "model.training_step(x), which calls self(x)")
def training_step_of_itself() -> Judge:
    return _train_by_method(body(), True)


@program("steps", "Lightning-like: training_step calls self.net(x), never the module itself")
def training_step_of_a_child() -> Judge:
    return _train_by_method(body(), False)


def encoder_decoder() -> Any:
    """Return a model of two parts that the loop calls one after the other, never the model."""
    return Parts(lambda net, x: None, encoder=body(), decoder=Layer(1, 1, "decoder"))


@program("steps", "encoder and decoder called separately, never the model")
def encoder_and_decoder() -> Judge:
    model = encoder_decoder()
    optimizer = sgd(model)
    judge = judge_loop(
        model, lambda batch: update(model.decoder(model.encoder(batch)).mean(), optimizer), STEPS, optimizer
    )
    return judge.steps().phases(*PHASES).step_time()


def train_adversaries(model: nn.Module, named: Any, generator: nn.Module, discriminator: nn.Module) -> Judge:
    """Train a GAN; ``named`` are the optimizers of generator and discriminator that autoprof is told."""
    of_generator, of_discriminator = named or (sgd(generator), sgd(discriminator))

    def step(batch: Tensor) -> None:
        fake = generator(batch)
        update(discriminator(fake.detach()).mean() - discriminator(batch).mean(), of_discriminator)
        update(-discriminator(fake).mean(), of_generator)

    return judge_loop(model, step, STEPS, named)


@program("steps", "a GAN whose models lie in a ModuleDict, two optimizers in turn")
def gan_in_a_dict() -> Judge:
    models = nn.ModuleDict({"generator": Layer(2, 2, "generator"), "discriminator": Layer(1, 2, "discriminator")})
    generator, discriminator = models["generator"], models["discriminator"]
    judge = train_adversaries(models, [sgd(generator), sgd(discriminator)], generator, discriminator)
    return judge.steps().phases(*PHASES).step_time()


@program("steps", "a GAN with the discriminator alone instrumented, which is trained once a step and judged twice")
def gan_with_the_discriminator_alone() -> Judge:
    generator, discriminator = Sleep(2, 2, "generator"), Sleep(1, 2, "discriminator")
    return train_adversaries(discriminator, None, generator, discriminator).steps().step_time()


@program("steps", "LBFGS with a closure that runs four times a step and sees one batch")
def lbfgs() -> Judge:
    model = two_layers()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-4, max_iter=4, tolerance_grad=0.0, tolerance_change=0.0)
    session = autoprof.instrument(model, optimizer=optimizer)
    for batch in clocked_steps(batches(30)):

        def closure(batch: Tensor = batch) -> Any:
            optimizer.zero_grad()
            loss = model(batch).mean()
            with CLOCK.phase("backward"):
                loss.backward()
            return loss

        with CLOCK.phase("optimizer"):
            optimizer.step(closure)  # type: ignore[no-untyped-call]
    return Judge(session).steps().phases("forward", "backward").step_time().throughput(8, may_be_absent=True)


class PreparedOptimizer(torch.optim.Optimizer):
    """An optimizer as Accelerate prepares it: a subclass of torch's without its attributes; the real one is inside."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


@program("steps", "an optimizer prepared by Accelerate, named to instrument")
def prepared_optimizer() -> Judge:
    model = two_layers()
    optimizer = PreparedOptimizer(sgd(model))
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), STEPS, optimizer)
    return judge.steps().phases(*PHASES).step_time()


@program("steps", "gradient accumulation: four micro-batches of 8 are 32 samples a step")
def gradient_accumulation() -> Judge:
    model, loader = Chain(Sleep(1, 2, "first")), loader_of(160)
    session, optimizer = instrumented(model)
    CLOCK.start()
    for number, (batch,) in enumerate(loader, 1):
        update(model(batch).mean() / 4)
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            CLOCK.step()
    judge = Judge(session).steps().phases(*PHASES).step_time().throughput(32)
    return judge.is_true("micro-batches", judge.summary.micro_steps == 4, judge.summary.micro_steps, "4")


class DecayingSGD(torch.optim.SGD):
    """An optimizer of one's own, derived from torch's, whose step calls its parent's."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["lr"] *= 0.999
        return super().step(closure)


@program("steps", "an optimizer derived from torch's SGD whose step calls super().step()")
def derived_optimizer() -> Judge:
    model = two_layers()
    optimizer = DecayingSGD(model.parameters(), lr=1e-4)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), STEPS, optimizer)
    return judge.steps().phases("forward", "backward").step_time()


@program("steps", "two optimizers that step together")
def two_optimizers_together() -> Judge:
    model = two_layers()
    optimizers = [sgd(model[0]), sgd(model[1])]
    judge = judge_loop(model, lambda batch: update(model(batch).mean(), *optimizers), STEPS, optimizers)
    return judge.steps().phases(*PHASES).step_time()


@program("steps", "a GAN in one module with manual optimization: two updates a step, as Lightning counts them")
def manual_optimization() -> Judge:
    model = encoder_decoder()
    first, second = sgd(model.encoder), sgd(model.decoder)
    session = autoprof.instrument(model, optimizer=[first, second])
    for batch in clocked_steps(batches(STEPS)):
        update(model.decoder(model.encoder(batch).detach()).mean(), second)
        update(model.decoder(model.encoder(batch)).mean(), first)
    return Judge(session).steps().phases(*PHASES).step_time()


@program("steps", "optimizers stepped in backward, one a parameter (register_post_accumulate_grad_hook)")
def optimizers_in_backward() -> Judge:
    model = two_layers()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=1e-4) for parameter in model.parameters()}

    def apply(parameter: Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(apply)  # type: ignore[no-untyped-call]
    judge = judge_loop(model, lambda batch: model(batch).mean().backward(), STEPS)
    return judge.steps().phases("forward").step_time()


@program("steps", "a custom update without a torch optimizer, and session.step()")
def custom_update() -> Judge:
    model = two_layers()
    session = autoprof.instrument(model)
    for batch in clocked_steps(batches(STEPS)):
        update(model(batch).mean())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 1e-4 * parameter.grad  # type: ignore[misc]
                parameter.grad = None
        session.step()
    return Judge(session).steps().phases("forward", "backward").step_time()


@program("steps", "reinforcement learning: a rollout without gradients, then four epochs of updates on it")
def several_epochs_a_rollout() -> Judge:
    model = Chain(Sleep(1, 2, "policy"))
    session, optimizer = instrumented(model)
    CLOCK.start()
    for _ in range(12):
        with torch.no_grad():
            states = [model(batch) for batch in batches(8)]
        for _ in range(4):
            update(model(torch.cat(states)).mean(), optimizer)
            CLOCK.step()
    return Judge(session).steps()


@program("steps", "two sessions: a teacher trained beside a student, each with its own")
def two_sessions() -> Judge:
    teacher, student = Chain(Sleep(1, 1, "teacher")), two_layers()
    of_teacher, of_student = sgd(teacher), sgd(student)
    beside = autoprof.instrument(teacher, optimizer=of_teacher)
    session = autoprof.instrument(student, optimizer=of_student)
    for batch in clocked_steps(batches(STEPS)):
        update(teacher(batch).mean(), of_teacher)
        update(student(batch).mean(), of_student)
    session.close()
    beside.close()
    second = Judge(beside).steps()
    judge = Judge(session).steps()
    judge.checks += second.checks
    return judge


@program("steps", "training in another thread than the one that called instrument")
def training_in_a_thread() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    thread = threading.Thread(target=train, args=(model, optimizer, STEPS))
    thread.start()
    thread.join()
    return Judge(session).steps().phases(*PHASES).step_time()


@program("steps", "a trainer in a class that fetches from a generator of slow batches")
def trainer_class() -> Judge:
    class Trainer:
        """The smallest trainer that people write."""

        def __init__(self, model: nn.Module) -> None:
            self.model, self.optimizer = model, sgd(model)

        def data(self) -> Iterator[Tensor]:
            for batch in batches(STEPS):
                with CLOCK.phase("data"):
                    rest(2)
                yield batch

        def fit(self) -> None:
            for batch in clocked_steps(session.loader(self.data())):
                update(self.model(batch).mean(), self.optimizer)

    trainer = Trainer(two_layers())
    session = autoprof.instrument(trainer.model, optimizer=trainer.optimizer)
    trainer.fit()
    return Judge(session).steps().phases(*PHASES, "data").step_time()


@program("steps", "session.step() after every batch, without an optimizer step at all")
def explicit_steps() -> Judge:
    model = two_layers()
    session = autoprof.instrument(model)
    CLOCK.start()
    for batch in batches(STEPS):
        update(model(batch).mean())
        CLOCK.step()
        session.step()
    return Judge(session).steps().phases("forward", "backward").step_time()


@program("steps", "inference only, 100 forwards in eval mode without gradients: the report says why there are no steps")
def inference_only() -> Judge:
    model = two_layers().eval()
    session = autoprof.instrument(model)
    CLOCK.start()
    with torch.inference_mode(), CLOCK.phase(EXCLUDED):
        for batch in batches(100):
            model(batch)
    CLOCK.step()
    return Judge(session).says(
        "why", r"no (training|backward|optimizer)|session\.step\(\)|only (validation|inference|eval)"
    )
