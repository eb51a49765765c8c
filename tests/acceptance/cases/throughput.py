"""Programs whose throughput is easy to get wrong: it is right, or absent where the batch is not certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import autoprof

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import (
    Chain,
    ClockedSGD,
    Root,
    Sleep,
    batches,
    loader_of,
    rest,
    sgd,
    sleep_op,
    train,
    train_step,
    two_layers,
)
from ..registry import program

STEPS = 80


def update(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Make the backward pass and the optimizer's step."""
    with CLOCK.phase("backward"):
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


@program("throughput", "batches of 8 from a DataLoader")
def batches_of_a_loader() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    loader = loader_of(STEPS)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for (batch,) in loader:
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8)


@program("throughput", "batches made in the loop, without a loader")
def batches_without_a_loader() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    train(model, optimizer, STEPS)
    session.close()
    return Judge(session).steps().throughput(8, may_be_absent=True)


@program("throughput", "out-of-memory retries: each fourth batch fails late and is done again in two halves")
def retries() -> Judge:
    class Tight(Root):
        """A model that fails for a full batch when it is told to."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.full = Sleep(3, 3), Sleep(2, 2), False

        def forward(self, x: Tensor) -> Any:
            x = self.first(x)
            if self.full and len(x) == 8:
                raise RuntimeError("out of memory")
            return self.second(x)

    model = Tight()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(STEPS)):
        model.full = number % 4 == 3
        try:
            update(model(batch).mean(), optimizer)
        except RuntimeError:
            for half in batch.chunk(2):
                loss = model(half).mean() / 2
                with CLOCK.phase("backward"):
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps(within=2).throughput(8, may_be_absent=True)


@program("throughput", "samples logged in every step")
def samples_logged() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        train_step(model, optimizer, batch)
        session.log(samples=8)
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8)


@program("throughput", "tokens logged in every step, from batches of 8 sequences of 32")
def tokens_logged() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        train_step(model, optimizer, batch)
        session.log(tokens=8 * 32)
        CLOCK.step()
    session.close()
    return Judge(session).throughput(8 * 32)


class SequenceFirst(Root):
    """A recurrent model of sequences whose first dimension is time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.sleep = nn.GRU(4, 4), Sleep(4, 4)

    def forward(self, x: Tensor) -> Any:
        return self.sleep(self.cell(x)[0])


@program("throughput", "sequence-first input: 100 time steps of 8 sequences are not 100 samples")
def sequence_first() -> Judge:
    model = SequenceFirst()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(STEPS):
        train_step(model, optimizer, torch.randn(100, 8, 4))
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8, may_be_absent=True)


@program("throughput", "LBFGS: its closure sees the batch four times a step")
def lbfgs_counts_once() -> Judge:
    model = two_layers()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-4, max_iter=4, tolerance_grad=0.0, tolerance_change=0.0)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(40):

        def closure(batch: Tensor = batch) -> Any:
            optimizer.zero_grad()
            loss = model(batch).mean()
            with CLOCK.phase("backward"):
                loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8, may_be_absent=True)


class Gan(Root):
    """A generator and a discriminator, called with a batch as one model."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = Sleep(2, 2), Sleep(1, 2)

    def forward(self, x: Tensor, detach: bool) -> Any:
        fake = self.generator(x)
        return self.discriminator(fake.detach() if detach else fake)


@program("throughput", "a GAN that sees each batch twice, with an optimizer in turn")
def gan_counts_once() -> Judge:
    model = Gan()
    optimizers = sgd(model.generator), sgd(model.discriminator)
    session = autoprof.instrument(model, optimizer=list(optimizers))
    CLOCK.start()
    for batch in batches(STEPS):
        update(model(batch, True).mean(), optimizers[1])
        update(-model(batch, False).mean(), optimizers[0])
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8, may_be_absent=True)


class Sam(ClockedSGD):
    """Sharpness-aware minimization: two passes over a batch before one update."""

    @torch.no_grad()
    def climb(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=1e-6)
        self.zero_grad()


@program("throughput", "SAM: two forwards and backwards of one batch before one step")
def sam_counts_once() -> Judge:
    model = two_layers()
    optimizer = Sam(model.parameters())
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        loss = model(batch).mean()
        with CLOCK.phase("backward"):
            loss.backward()
        optimizer.climb()
        update(model(batch).mean(), optimizer)
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8, may_be_absent=True)


@program("throughput", "meta-learning: inner steps on one half of a task's batch, the outer loss on all of it")
def meta_learning() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(60):
        fast: dict[str, Tensor] = dict(model.named_parameters())
        loss = torch.func.functional_call(model, fast, (batch,)).mean()
        with CLOCK.phase("backward"):
            gradients = torch.autograd.grad(loss, list(fast.values()))
        fast = {name: value - 1e-4 * slope for (name, value), slope in zip(fast.items(), gradients, strict=True)}
        update(torch.func.functional_call(model, fast, (batch,)).mean(), optimizer)
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8, may_be_absent=True)


class PerSample(nn.Module):
    """A model of single samples, to be used under vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 256), nn.Linear(256, 1)

    def forward(self, x: Tensor) -> Any:
        return self.second(torch.relu(self.first(x))).sum()


@program("throughput", "a model under vmap over 256 samples: a sample's first dimension is no batch")
def vmapped() -> Judge:
    model = PerSample()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS, 256):
        rest(3)
        loss = torch.func.vmap(model)(batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(256, may_be_absent=True)


@program("throughput", "gradient accumulation: four micro-batches of 8 are 32 samples a step")
def accumulated() -> Judge:
    model = Chain(Sleep(1, 2))
    optimizer = sgd(model)
    loader = loader_of(200)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, (batch,) in enumerate(loader, 1):
        loss = model(batch).mean() / 4
        with CLOCK.phase("backward"):
            loss.backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(32)


@program("throughput", "batches of 4 and 12 in turn")
def batches_of_two_sizes() -> Judge:
    class Weighted(Root):
        """A model whose time grows with the batch."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Any:
            return sleep_op(x, self.weight, 0.5 * len(x), 0.5 * len(x))

    model = Weighted()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    sizes = [12, 4] * 50
    train(model, optimizer, (torch.randn(size, 16) for size in sizes))
    session.close()
    return Judge(session).steps().throughput(sizes, may_be_absent=True)


@program("throughput", "validation every tenth step is no training time")
def validation_between() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    loader = loader_of(STEPS)
    CLOCK.start()
    for number, (batch,) in enumerate(loader, 1):
        train_step(model, optimizer, batch)
        if number % 10 == 0:
            model.eval()
            with CLOCK.phase(EXCLUDED), torch.no_grad():
                for other in batches(3, 32):
                    model(other)
            model.train()
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8)


class OfDict(Root):
    """A model that takes the keyword arguments of a Hugging Face batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.body = nn.Embedding(64, 16), Sleep(3, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        hidden = self.body(self.embed(input_ids) * attention_mask[..., None])
        return {"loss": (hidden.mean(-1) - labels).square().mean(), "logits": hidden}


@program("throughput", "model(**batch) with a dict of tokens, masks and labels from a loader")
def keyword_batches() -> Judge:
    model = OfDict()
    optimizer = sgd(model)
    samples = [{"input_ids": torch.zeros(32, dtype=torch.long), "attention_mask": torch.ones(32)} for _ in range(640)]
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in DataLoader(samples, batch_size=8):  # type: ignore[arg-type]
        update(model(**batch, labels=torch.zeros(8, 32))["loss"], optimizer)
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8, may_be_absent=True)


class OfGraph(Root):
    """A graph network: nodes of several graphs in one tensor, one output a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Sleep(4, 4)

    def forward(self, nodes: Tensor, graph: Tensor) -> Any:
        hidden = self.body(nodes)
        return torch.zeros(8, 16).index_add(0, graph, hidden)


@program("throughput", "graphs: 100 to 140 nodes of 8 graphs in one tensor are not 120 samples")
def graphs() -> Judge:
    model = OfGraph()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number in range(STEPS):
        count = 100 + number % 40
        update(model(torch.randn(count, 16), torch.arange(count) % 8).mean(), optimizer)
        CLOCK.step()
    session.close()
    return Judge(session).steps().throughput(8, may_be_absent=True)


@program("throughput", "the first 30 of 120 steps are slow: the run's throughput counts them, or the report says so")
def slow_beginning() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(120)):
        model[0].forward_ms = 12.0 if number < 30 else 2.0  # type: ignore[assignment]
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    judge = Judge(session).steps().throughput(8, may_be_absent=True)
    if judge.checks[-1].verdict == "right":
        return judge
    judge.checks.pop()
    return judge.says("recorded steps differ", r"unsampled steps|steps that were not recorded|not represent|differ")
