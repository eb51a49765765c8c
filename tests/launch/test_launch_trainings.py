"""Trainings are found without a call of autoprof: their models, their names, their first step, one after another."""

from __future__ import annotations

import copy
import gc
import io
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import optimizer_hooks
from torch import nn
from tqdm import tqdm

import autoprof
from autoprof.base.process import lifecycle
from autoprof.frontends.launch.announced import Announced
from autoprof.frontends.launch.settings import LaunchSettings
from autoprof.frontends.launch.startup import say
from autoprof.frontends.launch.trainings import Trainings


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainings]:
    """Look for training in this process, as ``autoprof run`` does, with a configuration without sinks."""
    config = tmp_path / "quiet.yaml"
    config.write_text("sinks: {}\nsample: {budget: null, warmup: 0}\nmonitor: off\nflops: off\n")
    monkeypatch.setattr(lifecycle, "_program_instruments", False)
    hooks = optimizer_hooks()
    search = Trainings(LaunchSettings(os.getpid(), str(tmp_path), str(config)), say)
    announced = Announced(torch.optim.Optimizer, "__init__", search.optimizer_made)
    announced.put()
    yield search
    announced.remove()
    search.close()
    assert not isinstance(vars(nn.Module)["__call__"], Announced)
    assert optimizer_hooks() == hooks


def test_a_message_does_not_continue_a_bar_of_tqdm(capsys: pytest.CaptureFixture[str]) -> None:
    """The bar has begun a line; without a bar there is no empty line."""
    with tqdm(total=2, file=io.StringIO()):
        say("recording")
    say("done")
    assert capsys.readouterr().err == "\nautoprof run: recording\nautoprof run: done\n"


def mlp(width: int = 4) -> nn.Sequential:
    """Return a small model."""
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 4))


def train(model: Callable[..., Any], optimizer: torch.optim.Optimizer, steps: int = 5) -> None:
    """Train for some steps."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def recorded(trainings: Trainings) -> autoprof.Summary:
    """Close the present session and return its summary."""
    session = trainings.session
    assert session is not None
    session.close()
    return session.summary()


def found(summary: autoprof.Summary) -> int:
    """Return the number of steps, recorded or not."""
    return summary.steps + summary.warmup_steps + summary.unsampled_steps


def names(summary: autoprof.Summary) -> set[str]:
    """Return the names of the summary's rows."""
    return {row.name for row in summary.rows}


def test_every_step_is_found_from_the_first(trainings: Trainings) -> None:
    """The session opens before the first forward of the model runs, and counts the steps of the optimizer."""
    model = mlp()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 7)
    summary = recorded(trainings)
    assert found(summary) == 7
    assert {"Sequential", "0", "2"} <= names(summary)


def test_the_search_ends_with_the_first_training_forward(trainings: Trainings) -> None:
    """From then on only the session's own hooks are in place."""
    model, before = mlp(), vars(nn.Module)["__call__"]
    model(torch.ones(2, 4))
    assert vars(nn.Module)["__call__"] is before  # no optimizer has been made
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert isinstance(vars(nn.Module)["__call__"], Announced)
    with torch.no_grad():
        model(torch.ones(2, 4))
    assert trainings.session is None
    train(model, optimizer, 1)
    assert trainings.session is not None
    assert vars(nn.Module)["__call__"] is before


def test_an_announced_method_leaves_no_frame(trainings: Trainings) -> None:
    """A forward that raises during the search has the traceback of the bare program."""

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self) -> None:
            raise ValueError("broken")

    model = Broken()
    torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="broken") as caught:
        model()
    files = [str(entry.path) for entry in caught.traceback]
    assert not [file for file in files if "autoprof/frontends/launch" in file]


def test_the_models_of_a_gan_are_one_run_under_the_names_of_the_program(trainings: Trainings) -> None:
    """Two models with an optimizer each: every step has both updates, and rows begin with the variables' names."""
    generator, critic = mlp(), mlp(8)
    made, judged = (torch.optim.Adam(model.parameters()) for model in (generator, critic))
    for _ in range(6):
        judged.zero_grad()
        critic(generator(torch.ones(2, 4)).detach()).sum().backward()
        judged.step()
        made.zero_grad()
        critic(generator(torch.ones(2, 4))).sum().backward()
        made.step()
    summary = recorded(trainings)
    assert found(summary) == 6
    assert {"generator", "critic"} <= names(summary)


def test_two_models_train_as_one_to_the_end(trainings: Trainings) -> None:
    """The module that joins them is not collected: the rows of its cut are chosen by it."""
    first, second = (
        nn.Sequential(nn.Sequential(*(nn.Linear(width, width + 1) for width in range(begin, begin + 12))))
        for begin in (4, 16)
    )
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    train(lambda x: second(first(x)), optimizer, 1)
    gc.collect()
    train(lambda x: second(first(x)), optimizer, 6)
    assert recorded(trainings).notes == ()


def test_each_fold_has_its_steps_where_validation_comes_between(trainings: Trainings) -> None:
    """The models of cross-validation are made at once, and trained one after another."""
    models = [mlp() for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, 6)
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, 4))
    assert found(recorded(trainings)) == 18


def test_models_that_an_object_holds_have_the_names_of_its_attributes(trainings: Trainings) -> None:
    """An agent's actor and critic are ``actor`` and ``critic``; its target network is not recorded."""

    class Agent:
        def __init__(self) -> None:
            self.actor, self._critic = mlp(), mlp(6)
            self.target = copy.deepcopy(self._critic)
            self.optimizer = torch.optim.Adam([*self.actor.parameters(), *self._critic.parameters()])

        def update(self) -> None:
            with torch.no_grad():
                wanted = self.target(torch.ones(2, 4))
            loss = (self._critic(self.actor(torch.ones(2, 4))) - wanted).square().sum()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    agent = Agent()
    for _ in range(5):
        agent.update()
    summary = recorded(trainings)
    assert found(summary) == 5
    assert {"actor", "critic"} <= names(summary)
    assert not [name for name in names(summary) if name.startswith("target")]


def test_a_wrapper_made_after_the_optimizer_is_the_model(trainings: Trainings) -> None:
    """The module that the program calls, as DDP, is outermost, and the first step has its forward."""

    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.inner(x)
            return result

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(Wrapper(model), optimizer)
    summary = recorded(trainings)
    assert found(summary) == 5
    assert "Wrapper" in names(summary)


def test_a_compiled_model_is_found_before_it_is_compiled(trainings: Trainings) -> None:
    """The search has ended when torch compiles: it traces the methods of torch."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="eager")
    try:
        train(compiled, optimizer)
    finally:
        torch._dynamo.reset()
    summary = recorded(trainings)
    assert found(summary) == 5


def test_a_model_called_by_its_method_is_found_by_the_modules_inside(trainings: Trainings) -> None:
    """``model.forward(x)`` is no call of the model, but its layers are called."""
    model = mlp()
    train(model.forward, torch.optim.SGD(model.parameters(), lr=0.1))
    summary = recorded(trainings)
    assert found(summary) == 5
    assert {"0", "2"} <= names(summary)


def test_a_model_whose_modules_are_never_called_is_found_by_its_optimizer(trainings: Trainings) -> None:
    """A forward of functions only: the session opens at the end of the first step, and counts it."""

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    model = Functional()
    train(model.forward, torch.optim.SGD(model.parameters(), lr=0.1), 6)
    assert found(recorded(trainings)) == 6


def test_trainings_one_after_another_have_a_session_each(trainings: Trainings) -> None:
    """Another model with another optimizer, as in cross-validation, ends the session before."""
    sessions = []
    for steps in (3, 4, 5):
        model = mlp()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps)
        sessions.append(trainings.session)
    recorded(trainings)
    assert [found(session.summary()) for session in sessions if session is not None] == [3, 4, 5]


def test_another_optimizer_of_the_same_model_is_the_same_training(trainings: Trainings) -> None:
    """A program that makes its optimizer again for each epoch has one run."""
    model = mlp()
    for _ in range(3):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    assert found(recorded(trainings)) == 6


def test_the_programs_own_session_wins_later(trainings: Trainings) -> None:
    """Where the program calls ``instrument`` in the middle of its training, the other session ends."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 2)
    with autoprof.instrument(model, {"sinks": {}, "sample": {"warmup": 0}}) as session:
        train(model, optimizer, 3)
    assert trainings.session is not None
    assert found(trainings.session.summary()) == 2
    assert found(session.summary()) == 3


def test_a_rule_that_selects_nothing_leaves_the_program_as_it_is(
    trainings: Trainings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is printed once, with the nearest names, and training goes on."""
    (tmp_path / "quiet.yaml").write_text("targets: [{match: 'nowhere'}]\nsinks: {}\n")
    model = mlp()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert trainings.session is None
    message = capsys.readouterr().err
    assert message.count("this program is not recorded") == 1
    assert "nowhere" in message


def test_the_model_of_each_training_is_freed_when_the_program_drops_it(trainings: Trainings) -> None:
    """A search trains one model after another: the session that is open holds not even the last one."""
    references = []
    train(warm := mlp(2), torch.optim.Adam(warm.parameters()))  # torch keeps the objects of the first step of a process
    gc.collect()
    gc.disable()
    try:
        for width in (3, 4, 5):
            model = mlp(width)
            train(model, torch.optim.Adam(model.parameters()))
            references.append((weakref.ref(model), weakref.ref(model[0].weight)))
            del model
        assert [[one() is None for one in pair] for pair in references] == [[True] * 2] * 3
    finally:
        gc.enable()


def test_two_models_are_freed_when_the_program_drops_them(trainings: Trainings) -> None:
    """The module that joins them does not hold them."""
    train(warm := mlp(2), torch.optim.Adam(warm.parameters()))  # torch keeps the objects of the first step of a process
    models = [mlp(3), mlp(5)]
    optimizer = torch.optim.SGD([*models[0].parameters(), *models[1].parameters()], lr=0.1)
    train(lambda x: models[1](models[0](x)), optimizer)
    references = [weakref.ref(model) for model in models]
    models.clear()
    del optimizer
    gc.collect()
    assert [one() for one in references] == [None, None]
