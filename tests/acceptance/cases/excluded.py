"""Programs that validate, save and pause between steps, and programs whose forwards without gradients are training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import autoprof

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import Layer, Root, Sleep, batches, loader_of, recomputed, rest, sgd, train_step
from ..registry import program

STEPS, EVERY, BATCHES = 80, 20, 4


class Model(Root):
    """An encoder and a head; ``generate`` calls the parts without the model."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = Sleep(3, 3, "encoder"), Sleep(1, 2, "head")

    def forward(self, x: Tensor) -> Any:
        return self.head(self.encoder(x))

    def generate(self, x: Tensor) -> Any:
        for _ in range(3):
            x = self.head(self.encoder(x))
        return x


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """Switch a model to eval mode inside the block, as excluded time of the program."""
    with CLOCK.phase(EXCLUDED):
        model.eval()
        try:
            yield
        finally:
            model.train()


def train_and(between: Callable[[Model, Any], None], model: Model | None = None) -> Judge:
    """Train, run something between steps after each twentieth, and compare what belongs to steps and what does not."""
    model = model or Model()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(STEPS), 1):
        train_step(model, optimizer, batch)
        if number % EVERY == 0:
            between(model, session)
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases("forward", "backward", "other").step_time().closes()


@program("excluded", "validation in eval mode under no_grad")
def validation() -> Judge:
    def validate(model: Model, session: Any) -> None:
        with evaluated(model), torch.no_grad():
            for batch in batches(BATCHES):
                model(batch)

    return train_and(validate).excluded()


@program("excluded", "validation in eval mode under inference_mode")
def validation_in_inference_mode() -> Judge:
    def validate(model: Model, session: Any) -> None:
        with evaluated(model), torch.inference_mode():
            for batch in batches(BATCHES):
                model(batch)

    return train_and(validate).excluded()


@program("excluded", "validation that calls submodules directly after model.eval(), under no_grad")
def validation_of_submodules() -> Judge:
    def validate(model: Model, session: Any) -> None:
        with evaluated(model), torch.no_grad():
            for batch in batches(BATCHES):
                model.head(model.encoder(batch))

    return train_and(validate).excluded()


@program("excluded", "validation that calls submodules directly after model.eval(), under inference_mode")
def validation_of_submodules_in_inference_mode() -> Judge:
    def validate(model: Model, session: Any) -> None:
        with evaluated(model), torch.inference_mode():
            for batch in batches(BATCHES):
                model.head(model.encoder(batch))

    return train_and(validate).excluded()


@program("excluded", "validation with only the children in eval mode; the model stays in train mode")
def validation_with_children_in_eval() -> Judge:
    def validate(model: Model, session: Any) -> None:
        with CLOCK.phase(EXCLUDED), torch.no_grad():
            for child in model.children():
                child.eval()
            for batch in batches(BATCHES):
                model(batch)
            for child in model.children():
                child.train()

    return train_and(validate).excluded()


@program("excluded", "validation of an EMA copy made by deepcopy before instrument")
def validation_of_an_average() -> Judge:
    model = Model()
    average = copy.deepcopy(model).eval()

    def validate(model: Model, session: Any) -> None:
        with CLOCK.phase(EXCLUDED), torch.no_grad():
            for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)
            for batch in batches(BATCHES):
                average(batch)

    return train_and(validate, model)


@program("excluded", "validation of an AveragedModel of torch.optim.swa_utils, made after instrument")
def validation_of_an_averaged_model() -> Judge:
    averages: list[Any] = []

    def validate(model: Model, session: Any) -> None:
        with CLOCK.phase(EXCLUDED), torch.no_grad():
            if not averages:
                averages.append(torch.optim.swa_utils.AveragedModel(model))
            averages[0].update_parameters(model)
            averages[0].eval()
            for batch in batches(BATCHES):
                averages[0](batch)

    return train_and(validate)


@program("excluded", "samples generated by a method that calls the parts, in eval mode without gradients")
def generation() -> Judge:
    def sample(model: Model, session: Any) -> None:
        with evaluated(model), torch.no_grad():
            model.generate(torch.randn(8, 16))

    return train_and(sample).excluded()


@program("excluded", "validation by a decorated function, @torch.no_grad()")
def validation_by_a_decorated_function() -> Judge:
    @torch.no_grad()
    def evaluate(model: Model) -> float:
        return sum(float(model(batch).mean()) for batch in batches(BATCHES))

    def validate(model: Model, session: Any) -> None:
        with evaluated(model):
            evaluate(model)

    return train_and(validate).excluded()


@program("excluded", "validation from a DataLoader of its own")
def validation_from_a_loader() -> Judge:
    loader = loader_of(BATCHES)

    def validate(model: Model, session: Any) -> None:
        with evaluated(model), torch.no_grad():
            for (batch,) in loader:
                model(batch)

    return train_and(validate).excluded()


@program("excluded", "validation in eval mode with gradients enabled, as many forget")
def validation_with_gradients() -> Judge:
    def validate(model: Model, session: Any) -> None:
        with evaluated(model):
            for batch in batches(BATCHES):
                model(batch)

    return train_and(validate).excluded()


class Checked(nn.Module):
    """A model that charges its own forward: with the first one of a run in ``eval`` mode validation begins."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = Sleep(3, 3, "encoder"), Sleep(1, 2, "head")

    def forward(self, x: Tensor) -> Any:
        with CLOCK.phase("forward" if self.training else EXCLUDED):
            return self.head(self.encoder(x))


@program("excluded", "validation before the first step, as a sanity check")
def validation_before_training() -> Judge:
    model = Checked()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    model.eval()
    with torch.no_grad():
        first, *others = batches(BATCHES)
        model(first)
        with CLOCK.phase(EXCLUDED):
            for batch in others:
                model(batch)
    model.train()
    for batch in batches(60):
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases("forward", "backward", "other").step_time().excluded()


@program("excluded", "validation after the last step")
def validation_after_training() -> Judge:
    model = Model()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(60), 1):
        train_step(model, optimizer, batch)
        if number == 60:
            with evaluated(model), torch.no_grad():
                for other in batches(3 * BATCHES):
                    model(other)
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases("forward", "backward", "other").step_time().excluded()


@program("excluded", "checkpoints of the training written by torch.save")
def saving() -> Judge:
    ballast = torch.randn(4_000_000)

    def save(model: Model, session: Any) -> None:
        with CLOCK.phase(EXCLUDED):
            torch.save({"model": model.state_dict(), "ballast": ballast}, Path("checkpoint.pt"))

    return train_and(save).excluded()


@program("excluded", "other work inside session.pause()")
def pausing() -> Judge:
    def pause(model: Model, session: Any) -> None:
        with CLOCK.phase(EXCLUDED), session.pause():
            rest(30)

    return train_and(pause).excluded()


@program("excluded", "accuracy on a training batch, in train mode under no_grad: never mixed into the forward")
def accuracy_in_train_mode() -> Judge:
    def measure(model: Model, session: Any) -> None:
        with CLOCK.phase(EXCLUDED), torch.no_grad():
            for batch in batches(BATCHES):
                model(batch)

    model = Model()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(STEPS), 1):
        train_step(model, optimizer, batch)
        if number % EVERY == 0:
            measure(model, session)
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases("forward", "backward").closes()


class Distilled(Root):
    """A student with a teacher that runs without gradients in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(Sleep(4, 0, "teacher")).requires_grad_(False).eval()
        self.student = Sleep(2, 3, "student")

    def train(self, mode: bool = True) -> Distilled:
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x: Tensor) -> Any:
        with torch.no_grad():
            target = self.teacher(x)
        return self.student(x) - target


def judge_every_step(model: nn.Module, *names: str) -> Judge:
    """Train with forwards without gradients in each step: they stay in it, under their own names."""
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time()
    for name in names:
        judge.row(rf"(.*\.)?{name}", "forward", name)
    return judge.excludes_nothing()


@program("excluded", "distillation: a teacher in eval mode without gradients in every step stays in the step")
def teacher() -> Judge:
    return judge_every_step(Distilled(), "teacher", "student")


class FrozenTrunk(Root):
    """A frozen trunk in eval mode under no_grad, and a head that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = Sleep(5, 0, "trunk").requires_grad_(False), Sleep(1, 2, "head")
        self.trunk.eval()

    def forward(self, x: Tensor) -> Any:
        with torch.no_grad():
            features = self.trunk(x)
        return self.head(features)


@program("excluded", "a frozen trunk in eval mode, called under no_grad by the model's forward")
def frozen_trunk() -> Judge:
    return judge_every_step(FrozenTrunk(), "trunk", "head")


@program("excluded", "a teacher and a student called by the loop, both parts of the instrumented module")
def teacher_called_by_the_loop() -> Judge:
    model = nn.ModuleDict({"teacher": Layer(4, 0, "teacher").requires_grad_(False), "student": Layer(2, 3, "student")})
    model["teacher"].eval()
    optimizer = sgd(model["student"])
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        with torch.no_grad():
            target = model["teacher"](batch)
        output = model["student"](batch)
        loss = (output - target).square().mean()
        with CLOCK.phase("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases("forward", "backward").step_time().row("teacher", "forward")


class Gan(nn.Module):
    """A generator and a discriminator."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = Layer(3, 2, "generator"), Layer(1, 2, "discriminator")


@program("excluded", "a GAN whose discriminator trains on images made under no_grad: the generator stays in the step")
def detached_generator() -> Judge:
    model = Gan()
    optimizers = sgd(model.generator), sgd(model.discriminator)
    session = autoprof.instrument(model, optimizer=list(optimizers))
    CLOCK.start()
    for batch in batches(60):
        with torch.no_grad():
            fake = model.generator(batch)
        loss = model.discriminator(fake).mean()
        with CLOCK.phase("backward"):
            loss.backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        loss = -model.discriminator(model.generator(batch)).mean()
        with CLOCK.phase("backward"):
            loss.backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases("forward", "backward").step_time().row("generator", "forward")


class Checkpointed(Root):
    """A model whose body is checkpointed only in training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = Sleep(1, 1, "stem"), Sleep(3, 3, "body")

    def part(self, x: Tensor) -> Any:
        with recomputed():
            return self.body(x)

    def forward(self, x: Tensor) -> Any:
        if not self.training:
            return self.body(self.stem(x))
        return torch.utils.checkpoint.checkpoint(self.part, self.stem(x), use_reentrant=False)


@program("excluded", "validation of a model with checkpointing: neither forward nor recompute holds it")
def validation_of_a_checkpointed_model() -> Judge:
    def validate(model: Any, session: Any) -> None:
        with evaluated(model), torch.no_grad():
            for batch in batches(BATCHES):
                model(batch)

    model: Any = Checkpointed()
    return train_and(validate, model).phases("recompute").excluded()
