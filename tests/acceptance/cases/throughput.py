"""Programs whose throughput is easy to get wrong: it is right, or absent where the batch is not certain."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import autoprof

from ..clock import CLOCK
from ..judge import Judge
from ..parts import (
    Parts,
    Sleep,
    batches,
    clocked_steps,
    instrumented,
    judge_plain,
    loader_of,
    rest,
    sgd,
    sleep_op,
    train_step,
    two_layers,
    update,
    validate,
    weight,
)
from ..registry import program

STEPS = 80


@program("throughput", "batches of 8 from a DataLoader")
def batches_of_a_loader() -> Judge:
    model = two_layers()
    loader = loader_of(STEPS)
    return judge_plain(model, (batch for (batch,) in loader)).steps().throughput(8)


@program("throughput", "batches made in the loop, without a loader")
def batches_without_a_loader() -> Judge:
    model = two_layers()
    return judge_plain(model, STEPS).steps().throughput(8, may_be_absent=True)


@program("throughput", "out-of-memory retries: each fourth batch fails late and is done again in two halves")
def retries() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        x = net.first(x)
        if net.full and len(x) == 8:
            raise RuntimeError("out of memory")
        return net.second(x)

    model = Parts(call, first=Sleep(3, 3), second=Sleep(2, 2), full=False)
    session, optimizer = instrumented(model)
    for number, batch in enumerate(clocked_steps(batches(STEPS))):
        model.full = number % 4 == 3
        try:
            update(model(batch).mean(), optimizer)
        except RuntimeError:
            for half in batch.chunk(2):
                update(model(half).mean() / 2)
            optimizer.step()
            optimizer.zero_grad()
    return Judge(session).steps(within=2).throughput(8, may_be_absent=True)


@program("throughput", "samples logged in every step")
def samples_logged() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        train_step(model, optimizer, batch)
        session.log(samples=8)
    return Judge(session).steps().throughput(8)


@program("throughput", "tokens logged in every step, from batches of 8 sequences of 32")
def tokens_logged() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        train_step(model, optimizer, batch)
        session.log(tokens=8 * 32)
    return Judge(session).throughput(8 * 32)


@program("throughput", "sequence-first input: 100 time steps of 8 sequences are not 100 samples")
def sequence_first() -> Judge:
    model = Parts(lambda net, x: net.sleep(net.cell(x)[0]), cell=nn.GRU(4, 4), sleep=Sleep(4, 4))
    return judge_plain(model, (torch.randn(100, 8, 4) for _ in range(STEPS))).steps().throughput(8, may_be_absent=True)


@program("throughput", "a GAN that sees each batch twice, with an optimizer in turn")
def gan_counts_once() -> Judge:
    def call(net: Any, x: Tensor, detach: bool) -> Any:
        fake = net.generator(x)
        return net.discriminator(fake.detach() if detach else fake)

    model: Any = Parts(call, generator=Sleep(2, 2), discriminator=Sleep(1, 2))
    optimizers = sgd(model.generator), sgd(model.discriminator)
    session = autoprof.instrument(model, optimizer=list(optimizers))
    for batch in clocked_steps(batches(STEPS)):
        update(model(batch, True).mean(), optimizers[1])
        update(-model(batch, False).mean(), optimizers[0])
    return Judge(session).steps().throughput(8, may_be_absent=True)


@program("throughput", "SAM: two forwards and backwards of one batch before one step")
def sam_counts_once() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        update(model(batch).mean())
        with CLOCK.phase("optimizer"), torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=1e-6)  # type: ignore[arg-type]
        optimizer.zero_grad()
        update(model(batch).mean(), optimizer)
    return Judge(session).steps().throughput(8, may_be_absent=True)


@program("throughput", "meta-learning: inner steps on one half of a task's batch, the outer loss on all of it")
def meta_learning() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(60)):
        fast: dict[str, Tensor] = dict(model.named_parameters())
        loss = torch.func.functional_call(model, fast, (batch,)).mean()
        with CLOCK.phase("backward"):
            gradients = torch.autograd.grad(loss, list(fast.values()))
        fast = {name: value - 1e-4 * slope for (name, value), slope in zip(fast.items(), gradients, strict=True)}
        update(torch.func.functional_call(model, fast, (batch,)).mean(), optimizer)
    return Judge(session).steps().throughput(8, may_be_absent=True)


@program("throughput", "a model under vmap over 256 samples: a sample's first dimension is no batch")
def vmapped() -> Judge:
    model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 1))
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS, 256)):
        rest(3)
        update(torch.func.vmap(model)(batch).mean(), optimizer)
    return Judge(session).steps().throughput(256, may_be_absent=True)


@program("throughput", "batches of 4 and 12 in turn")
def batches_of_two_sizes() -> Judge:
    model = Parts(lambda net, x: sleep_op(x, net.weight, 0.5 * len(x), 0.5 * len(x)), weight=weight())
    sizes = [12, 4] * 50
    return judge_plain(model, (torch.randn(size, 16) for size in sizes)).steps().throughput(sizes, may_be_absent=True)


@program("throughput", "validation every tenth step is no training time")
def validation_between() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    loader = loader_of(STEPS)
    for number, (batch,) in enumerate(clocked_steps(loader), 1):
        train_step(model, optimizer, batch)
        if number % 10 == 0:
            validate(model, 3, 32)
    return Judge(session).steps().throughput(8)


@program("throughput", "model(**batch) with a dict of tokens, masks and labels from a loader")
def keyword_batches() -> Judge:
    def call(net: Any, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        hidden = net.body(net.embed(input_ids) * attention_mask[..., None])
        return {"loss": (hidden.mean(-1) - labels).square().mean(), "logits": hidden}

    model = Parts(call, embed=nn.Embedding(64, 16), body=Sleep(3, 4))
    samples = [{"input_ids": torch.zeros(32, dtype=torch.long), "attention_mask": torch.ones(32)} for _ in range(640)]
    session, optimizer = instrumented(model)
    CLOCK.start()
    for batch in DataLoader(samples, batch_size=8):  # type: ignore[arg-type]
        update(model(**batch, labels=torch.zeros(8, 32))["loss"], optimizer)
        CLOCK.step()
    return Judge(session).steps().throughput(8, may_be_absent=True)


@program("throughput", "graphs: 100 to 140 nodes of 8 graphs in one tensor are not 120 samples")
def graphs() -> Judge:
    def call(net: Any, nodes: Tensor, graph: Tensor) -> Tensor:
        return torch.zeros(8, 16).index_add(0, graph, net.body(nodes))

    model = Parts(call, body=Sleep(4, 4))
    session, optimizer = instrumented(model)
    for number in clocked_steps(range(STEPS)):
        count = 100 + number % 40
        update(model(torch.randn(count, 16), torch.arange(count) % 8).mean(), optimizer)
    return Judge(session).steps().throughput(8, may_be_absent=True)
