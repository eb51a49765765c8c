"""Loops as people write their scripts: a figure after the loop, ``next`` on an iterator, prefetching, EMA, AMP."""

import queue
import threading
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import autoprof

from ..clock import CLOCK
from ..judge import Judge
from ..parts import (
    Chain,
    Parts,
    Sleep,
    SlowSamples,
    batches,
    clocked_steps,
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

STEPS = 80


def draw_figure(ms: float) -> None:
    """Take a time in plain code, as a script does that draws its curves."""
    time.sleep(ms / 1e3)


@program("steps", "a figure that takes 1.5 s, drawn after the loop and before the session closes, is in no step")
def figure_after_the_loop() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    train(model, optimizer, STEPS)
    draw_figure(1500)
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time().run_time()
    return judge.throughput(8, may_be_absent=True)


@program("steps", "the same after a loop over a DataLoader of 400 steps, which ends where nothing is recorded")
def figure_after_a_long_loop() -> Judge:
    model = Chain(Sleep(0.5, 0.5), Sleep(0.5, 0.5))
    loader = loader_of(400)
    session, optimizer = instrumented(model)
    train(model, optimizer, (batch for (batch,) in loader))
    draw_figure(1500)
    return Judge(session).steps().phases("forward", "backward").run_time().throughput(8)


@program("excluded", "validation at the end of each epoch, with a figure of 0.5 s after the last one")
def figure_after_the_last_validation() -> Judge:
    model = two_layers()
    loader = loader_of(20)
    session, optimizer = instrumented(model)
    CLOCK.start()
    for _ in range(4):
        for number, (batch,) in enumerate(loader, 1):
            train_step(model, optimizer, batch)
            if number == 20:
                validate(model)
            CLOCK.step()
    draw_figure(500)
    return Judge(session).steps().phases("forward", "backward").run_time().excluded(relative=0.1)


@program("steps", "next() on an iterator that is made anew when a DataLoader is exhausted")
def next_on_an_iterator() -> Judge:
    model = two_layers()
    loader = SlowSamples(8 * 15, 0.25).loader()
    session, optimizer = instrumented(model)
    CLOCK.start()
    iterator = iter(loader)
    for _ in range(STEPS):
        try:
            batch = next(iterator)
        except StopIteration:
            iterator = iter(loader)
            batch = next(iterator)
        optimizer.zero_grad()
        update(model(batch).square().mean())
        optimizer.step()
        CLOCK.step()
    return Judge(session).steps().phases("data", "forward", "backward").step_time().throughput(8)


@program("steps", "torch.amp.GradScaler, whose first two steps overflow and are left out")
def gradient_scaler() -> Judge:
    model, loader = two_layers(), loader_of(STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
    session, optimizer = instrumented(model)
    for number, (batch,) in enumerate(clocked_steps(loader)):
        loss = model(batch).square().mean()
        scaled = scaler.scale(loss * float("inf") if number < 2 else loss)
        with CLOCK.phase("backward"):
            scaled.backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return Judge(session).steps(within=2).phases("forward", "backward").step_time().throughput(8)


@program("excluded", "latent diffusion: a frozen encoder that is no part of the model runs before each forward")
def frozen_encoder_outside() -> Judge:
    encoder = nn.Sequential(Sleep(4, 0)).requires_grad_(False).eval()
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        with torch.no_grad():
            latents = encoder(batch)
        train_step(model, optimizer, latents + torch.randn_like(latents))

    return (
        judge_loop(model, step, STEPS, optimizer)
        .steps()
        .phases("forward", "backward", "other")
        .step_time()
        .excludes_nothing()
    )


@program("excluded", "an EMA of the weights updated after every step stays in the step")
def average_every_step() -> Judge:
    model = two_layers()
    average = torch.optim.swa_utils.AveragedModel(model)
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        train_step(model, optimizer, batch)
        average.update_parameters(model)
        rest(2)
    return Judge(session).steps().phases("forward", "backward", "other").step_time().excludes_nothing()


@program("throughput", "contrastive learning: two views of a batch through the model, one loss")
def two_views() -> Judge:
    model = two_layers()
    loader = loader_of(STEPS)
    session, optimizer = instrumented(model)
    for (batch,) in clocked_steps(loader):
        update((model(batch) - model(batch + 0.1 * torch.randn_like(batch))).square().mean(), optimizer)
    return Judge(session).steps().phases("forward", "backward").step_time().throughput(8)


@program("throughput", "two loaders in a zip: labelled and unlabelled batches for one step")
def zipped_loaders() -> Judge:
    model = two_layers()
    labelled = loader_of(STEPS, 4)
    unlabelled = loader_of(STEPS, 12)
    session, optimizer = instrumented(model)
    for (first,), (second,) in clocked_steps(zip(labelled, unlabelled, strict=True)):
        train_step(model, optimizer, torch.cat([first, second]))
    return Judge(session).steps().phases("forward", "backward").step_time().throughput(16, may_be_absent=True)


@program("findings", "batches from a queue that a slow thread fills: the wait is named with its file and line")
def queue_of_a_thread() -> Judge:
    filled: queue.Queue[Tensor | None] = queue.Queue(2)

    def fill() -> None:
        for batch in batches(STEPS):
            rest(20)
            filled.put(batch)
        filled.put(None)

    model = two_layers()
    threading.Thread(target=fill, daemon=True).start()
    session, optimizer = instrumented(model)
    CLOCK.start()
    while (batch := filled.get()) is not None:
        train_step(model, optimizer, batch)
        CLOCK.step()
    return Judge(session).steps().phases("forward", "backward", "other").finds("unattributed", r"habits\.py:\d+")


@program("steps", "truncated backpropagation through time: five chunks of a sequence, an update after each")
def truncated_sequences() -> Judge:
    def call(net: Any, x: Tensor, state: Tensor | None) -> Any:
        x, state = net.cell(x, state)
        return net.body(x), state

    model = Parts(call, cell=nn.GRU(16, 16, batch_first=True), body=Sleep(2, 3))
    loader = DataLoader(TensorDataset(torch.randn(8 * 16, 20, 16)), batch_size=8)
    session, optimizer = instrumented(model)
    CLOCK.start()
    for (sequences,) in loader:
        state = None
        for chunk in sequences.chunk(5, 1):
            output, state = model(chunk, state if state is None else state.detach())
            update(output.square().mean(), optimizer)
            CLOCK.step()
    return Judge(session).steps().phases("forward", "backward").step_time()


@program("steps", "WGAN-GP: the critic is updated with a gradient penalty for each batch, the generator for each fifth")
def gradient_penalty() -> Judge:
    def call(net: Any, x: Tensor, part: str) -> Any:
        rest(1)
        return net.critic(x) if part == "critic" else net.generator(x)

    judges = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    model: Any = Parts(call, generator=nn.Linear(16, 16), critic=judges)
    critic, generator = sgd(model.critic, 0.5), sgd(model.generator, 0.5)
    session = autoprof.instrument(model, optimizer=[critic, generator])
    for number, batch in enumerate(clocked_steps(batches(100)), 1):
        mixed = model(batch, "generator").detach().requires_grad_()
        scores = model(mixed, "critic")
        with CLOCK.phase("backward"):
            (slope,) = torch.autograd.grad(scores.sum(), mixed, create_graph=True)
        update(scores.mean() + (slope.norm(dim=1) - 1).square().mean())
        critic.step()
        model.zero_grad()
        if number % 5 == 0:
            update(-model(model(batch, "generator"), "critic").mean())
            generator.step()
            model.zero_grad()
    return Judge(session).steps().phases("forward", "backward", "optimizer").step_time()


@program("findings", "healthy: loss.item(), gradient clipping, a scheduler and a progress line in every step")
def healthy_habits() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    loader = loader_of(STEPS, shuffle=True)
    CLOCK.start()
    total = 0.0
    for number, (batch,) in enumerate(loader, 1):
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).square().mean()
        with CLOCK.phase("backward"):
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        total += loss.item()
        print(f"\rstep {number} loss {total / number:.3f}", end="")
        CLOCK.step()
    return Judge(session).steps().phases("forward", "backward").step_time().throughput(8).silent()
