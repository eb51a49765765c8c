"""Random models and loops from fixed seeds: nested blocks, checkpoints, frozen parts, several optimizers."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import autoprof

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import Root, Sleep, batches, recomputed, rest, sgd, validate
from ..registry import Program, add

SEEDS = range(1, 15)
STEPS = 80
BUDGET_MS = 12.0
"""The forward time of a random model, about."""


class Sequence(nn.Module):
    """Parts in a row."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Any:
        for part in self.parts:
            x = part(x)
        return x


class Branches(nn.Module):
    """Parts beside one another, with a plain sum at the end."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.left, self.right = Sequence(parts[::2]), Sequence(parts[1::2])

    def forward(self, x: Tensor) -> Any:
        return self.left(x) + self.right(x)


class Checkpointed(nn.Module):
    """A part whose forward is computed again in backward, by one of the forms of checkpoint."""

    def __init__(self, inner: nn.Module, form: int) -> None:
        super().__init__()
        self.inner, self.form = inner, form

    def run(self, x: Tensor) -> Any:
        with recomputed():
            return self.inner(x)

    def forward(self, x: Tensor) -> Any:
        if not torch.is_grad_enabled():
            return self.inner(x)
        called: Callable[[Tensor], Any] = (self.run, lambda y: self.run(y), partial(self.run))[self.form % 3]
        return checkpoint(called, x, use_reentrant=self.form >= 3 and x.requires_grad)


class Frozen(nn.Module):
    """A part without gradients beside the way of the data."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)

    def forward(self, x: Tensor) -> Any:
        with torch.no_grad():
            extra = self.inner(x)
        return x + 1e-3 * extra


class RandomRoot(Root):
    """A whole random model with a plain operation of its own."""

    def __init__(self, body: nn.Module, own_ms: float) -> None:
        super().__init__()
        self.stem, self.body, self.own_ms = Sleep(0.5, 0.5), body, own_ms

    def forward(self, x: Tensor) -> Any:
        x = self.body(self.stem(x))
        rest(self.own_ms)
        return x


def random_part(random: Random, budget_ms: float, depth: int) -> nn.Module:
    """Return a part whose forward takes about a time."""
    if depth == 0 or budget_ms < 1.5:
        return Sleep(budget_ms, budget_ms * random.uniform(0.7, 1.6))
    kind = random.choice(("row", "row", "branches", "repeated", "checkpointed", "frozen"))
    if kind == "checkpointed":
        return Checkpointed(random_part(random, budget_ms, depth - 1), random.randrange(6))
    if kind == "frozen":
        return Sequence([Frozen(Sleep(0.3 * budget_ms, 0)), random_part(random, 0.7 * budget_ms, depth - 1)])
    count = random.randint(2, 4)
    if kind == "repeated":
        seed = random.random()
        return Sequence([random_part(Random(seed), budget_ms / count, depth - 1) for _ in range(count)])
    shares = [random.uniform(0.2, 1.0) for _ in range(count)]
    parts = [random_part(random, budget_ms * share / sum(shares), depth - 1) for share in shares]
    return Sequence(parts) if kind == "row" else Branches(parts)


def run_seed(seed: int) -> Judge:
    """Make a model and a loop from a seed, train, and compare every phase."""
    random = Random(seed)
    model = RandomRoot(random_part(random, BUDGET_MS, 4), random.choice((0.0, 0.0, 3.0)))
    micro = random.choice((1, 1, 1, 2))
    validates, saves = random.random() < 0.5, random.random() < 0.3
    data_ms, optimizer_ms, other_ms = (random.choice((0.0, 0.0, 2.0)) for _ in range(3))
    halves = [list(model.stem.parameters()), list(model.body.parameters())]
    parameters = halves if random.random() < 0.3 else [halves[0] + halves[1]]
    optimizers = [type(sgd(model))(some, sleep_ms=optimizer_ms / len(parameters)) for some in parameters]
    session = autoprof.instrument(model, optimizer=optimizers if random.random() < 0.7 else None)
    CLOCK.start()

    def slow(count: int) -> Any:
        for batch in batches(count):
            with CLOCK.phase("data"):
                rest(data_ms)
            yield batch

    for number, batch in enumerate(session.loader(slow(STEPS * micro)), 1):
        loss = model(batch).square().mean() / micro
        with CLOCK.phase("backward"):
            loss.backward()
        if number % micro:
            continue
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        rest(other_ms)
        if number % (20 * micro) == 0:
            _between(model, validates, saves)
        CLOCK.step()
    judge = Judge(session).steps().step_time()
    judge.phases("data", "forward", "recompute", "backward", "optimizer", "other").closes()
    return judge.excluded(relative=0.1)


def _between(model: nn.Module, validates: bool, saves: bool) -> None:
    if validates:
        validate(model, 3)
    if saves:
        state = model.state_dict()  # the program's own work: the report's row is the call of torch.save
        with CLOCK.phase(EXCLUDED):
            torch.save(state, "checkpoint.pt")


for _seed in SEEDS:
    add(Program(f"random_{_seed:02}", "random", f"a random model and loop, seed {_seed}", partial(run_seed, _seed)))
