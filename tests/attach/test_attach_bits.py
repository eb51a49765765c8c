"""Attach and detach at random moments: parameters, optimizer and random state are those of an undisturbed run."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attach_requests import Command, is_armed
from attached import open_sessions
from bits import describe, random_states
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

Program = Callable[[], Iterator[Any]]
"""A training that yields at arbitrary places, with what is compared at its end."""


def a_transformer_with_dropout() -> Iterator[Any]:
    """AdamW, a schedule, clipped gradients; the request may come inside forward, backward and step."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    while True:
        yield model, optimizer
        loss = model(torch.randn(2, 4, 8)).square().mean()
        yield model, optimizer
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        yield model, optimizer
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def two_models_in_turn() -> Iterator[Any]:
    """A GAN."""
    generator, critic = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 1))
    optimizers = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    while True:
        for optimizer, sign in zip(optimizers, (1, -1), strict=True):
            optimizer.zero_grad()
            (sign * critic(generator(torch.randn(3, 2)))).mean().backward()
            yield generator, critic, *optimizers
            optimizer.step()


def checkpointed_blocks() -> Iterator[Any]:
    """Recompute in the backward pass, with dropout."""
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()) for _ in range(3))
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1, momentum=0.9)
    while True:
        x = torch.randn(2, 4, requires_grad=True)
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
            yield blocks, optimizer
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def batches_of_a_loader() -> Iterator[Any]:
    """A step for each two batches of a shuffled loader, whose epoch goes on meanwhile."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=4, shuffle=True)
    while True:
        for number, (batch,) in enumerate(loader, 1):
            yield model, optimizer
            model(batch).square().mean().backward()
            if number % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()


def a_closure() -> Iterator[Any]:
    """LBFGS calls the model several times inside its step."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4)).square().mean()
        loss.backward()
        return loss

    while True:
        yield model, optimizer
        optimizer.step(closure)  # type: ignore[arg-type]


PROGRAMS = [a_transformer_with_dropout, two_models_in_turn, checkpointed_blocks, batches_of_a_loader, a_closure]


def end_of(program: Program, pauses: int, visit: Callable[[int], None] = lambda number: None) -> Any:
    """Run a program up to a number of its places; return its state there, as text that has all bits."""
    torch.manual_seed(0)
    training = program()
    for number in range(pauses):
        state = next(training)
        visit(number)
    return [describe(one.state_dict()) for one in state], random_states()


def attach_and_detach(program: Program, cycles: int, seed: int, folder: Path) -> None:
    """Compare a run with another in which sessions open and close at random places."""
    moments, place = random.Random(seed), 0
    visits = dict[int, Command]()
    for number in range(cycles):
        command = Command(folder / str(number))
        for _ in range(2):  # ask there, then withdraw
            place += moments.randint(1, 9)
            visits[place] = command
        place += 8  # a step ends before the next command

    asked = set[int]()

    def visit(number: int) -> None:
        command = visits.get(number)
        if command is not None:
            command.withdraw() if id(command) in asked else command.ask()
            asked.add(id(command))

    assert end_of(program, place + 1, visit) == end_of(program, place + 1)
    assert not open_sessions()
    assert not is_armed()
    commands = list(dict.fromkeys(visits.values()))
    assert [(one.states()[-1], one.reasons()) for one in commands] == [("closed", [])] * cycles
    assert any("recording" in one.states() for one in commands)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_training_ends_with_the_same_bits(program: Program, tmp_path: Path) -> None:
    """Three cycles at random places."""
    attach_and_detach(program, 3, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_cycles_change_no_bit(program: Program, seed: int, tmp_path: Path) -> None:
    """Five programs, four runs of each, and five or more cycles in each run."""
    attach_and_detach(program, 6, seed + 10, tmp_path)
