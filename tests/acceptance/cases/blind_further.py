"""Training scripts as people write them, written from the README and the pages on the report and the verdict alone."""

import argparse
import ast
import copy
import csv
import fcntl
import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

import autoprof

from ..clock import CLOCK
from ..judge import Judge
from ..parts import (
    Chain,
    Layer,
    Parts,
    Root,
    Sleep,
    SlowSamples,
    Unlike,
    batches,
    clocked_steps,
    evaluated,
    judge_loop,
    loader_of,
    rest,
    sgd,
    train_step,
    two_layers,
    update,
    validate,
)
from ..registry import program

STEPS: Final = 100
PHASES: Final = ("forward", "backward", "optimizer")


def at(*functions: str) -> str:
    """Return a pattern for the lines of this file that lie in one of the functions or call it."""
    text = Path(__file__).read_text(encoding="utf-8")
    lines = enumerate(text.splitlines(), 1)
    numbers = {number for number, line in lines if any(f"{name}(" in line for name in functions)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name in functions:
            numbers.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return rf"blind_further\.py:(?:{'|'.join(map(str, sorted(numbers)))})\b"


def each(every: int) -> str:
    """Return a pattern for the sentences that name a rhythm."""
    return rf"\b{every}(?:st|nd|rd|th)\b|(?:every|each|in|of|per) {every}\b|steps such as \d+(?:, \d+)+"


def excludes_little(judge: Judge) -> Judge:
    """Require that next to no time of the run is excluded; the report may need the first steps to see what they do."""
    total_ns = sum(one.total_ns for one in judge.summary.stages)
    return judge.is_true("excluded", total_ns < 30e6, f"{total_ns / 1e6:.1f} ms", "at most the first steps")


def mebibyte() -> Tensor:
    """Return a tensor of one MiB."""
    return torch.ones(2**18)


# scripts and their loops


@dataclass(frozen=True)
class TrainConfig:
    """The settings of the script."""

    steps: int = 90
    eval_every: int = 30
    batch_size: int = 8
    sample_ms: float = 0.4

    @classmethod
    def parse(cls, arguments: list[str]) -> "TrainConfig":
        """Read the settings from a command line."""
        parser = argparse.ArgumentParser()
        for entry in fields(cls):
            parser.add_argument(f"--{entry.name.replace('_', '-')}", type=type(entry.default), default=entry.default)
        return cls(**vars(parser.parse_args(arguments)))


class Trainer:
    """The trainer of a research repository: a bar, a CSV file, an evaluation by steps, an end inside an epoch."""

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        self.config = config
        self.model = two_layers()
        self.optimizer = sgd(self.model)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 40)
        self.loader = SlowSamples(8 * 40, config.sample_ms).loader(config.batch_size)
        self.session = autoprof.instrument(self.model, optimizer=self.optimizer)
        self.path = folder / "log.csv"
        self.done = 0

    def run(self) -> None:
        """Train until the number of steps is reached."""
        with self.path.open("w", newline="") as file:
            rows = csv.writer(file)
            CLOCK.start()
            while self.done < self.config.steps:
                for batch in self.loader:
                    loss = self.fit_batch(batch)
                    rows.writerow([self.done, f"{loss:.4f}", self.schedule.get_last_lr()[0]])
                    self._bar(loss)
                    if self.done % self.config.eval_every == 0:
                        self._check_in()
                    CLOCK.step()
                    if self.done >= self.config.steps:
                        break

    def fit_batch(self, batch: Tensor) -> float:
        """Train on one batch; return its loss."""
        loss = self.model(batch).square().mean()
        with CLOCK.phase("backward"):
            loss.backward()
        with CLOCK.phase("optimizer"):
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.done += 1
        return loss.item()

    def _bar(self, loss: float) -> None:
        filled = 20 * self.done // self.config.steps
        sys.stderr.write(f"\r[{'#' * filled:<20}] {self.done} loss {loss:.3f}")

    def _check_in(self) -> None:
        validate(self.model)


@program("steps", "a repository's trainer: argparse, a config class, a bar, a CSV file, the end inside the third epoch")
def trainer_of_a_repository() -> Judge:
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(TrainConfig.parse(["--steps", "90", "--eval-every", "30"]), Path(folder))
        trainer.run()
        judge = Judge(trainer.session)
    return judge.steps().phases("data", *PHASES).step_time().excluded().throughput(8).closes()


@program("steps", "deep mutual learning: both networks run first, then each has its backward and its own update")
def two_peers_learn_from_each_other() -> Judge:
    model = nn.ModuleDict({"a": Layer(2, 3, "a"), "b": Layer(1, 4, "b")})
    optimizers = sgd(model["a"]), sgd(model["b"])

    def step(batch: Tensor) -> None:
        one, two = model["a"](batch), model["b"](batch)
        update((one - two.detach()).square().mean(), optimizers[0])
        update((two - one.detach()).square().mean(), optimizers[1])

    return judge_loop(model, step, STEPS).steps().phases(*PHASES).step_time().closes()


@program("steps", "a learning-rate finder of 40 steps with its own optimizer, the weights put back, then training")
def finder_before_training() -> Judge:
    model = two_layers()
    session = autoprof.instrument(model)
    data = clocked_steps(batches(120))
    kept = copy.deepcopy(model.state_dict())
    finder = torch.optim.SGD(model.parameters(), lr=1e-7)
    rates = torch.optim.lr_scheduler.ExponentialLR(finder, 1.1)
    curve: list[tuple[float, float]] = []
    for batch in itertools.islice(data, 40):
        loss = model(batch).square().mean()
        with CLOCK.phase("backward"):
            loss.backward()
        with CLOCK.phase("optimizer"):
            finder.step()
            finder.zero_grad()
        rates.step()
        curve.append((rates.get_last_lr()[0], loss.item()))
    model.load_state_dict(kept)
    optimizer = sgd(model)
    for batch in data:
        train_step(model, optimizer, batch)
    return Judge(session).steps(120).phases(*PHASES).step_time().closes()


@program("steps", "first-order MAML in place: three inner updates by hand, the weights put back, one outer update")
def first_order_maml_in_place() -> Judge:
    model = Chain(Sleep(1, 1, "first"), Sleep(1, 2, "second"))
    optimizer = sgd(model)
    weights = list(model.parameters())

    def gradients(samples: Tensor) -> tuple[Tensor, ...]:
        loss = model(samples).square().mean()
        with CLOCK.phase("backward"):
            return torch.autograd.grad(loss, weights)

    def step(task: Tensor) -> None:
        support, query = task.chunk(2)
        start = [weight.detach().clone() for weight in weights]
        for _ in range(3):
            inner = gradients(support)
            with torch.no_grad():
                for weight, gradient in zip(weights, inner, strict=True):
                    weight.sub_(gradient, alpha=1e-4)
        outer = gradients(query)
        with torch.no_grad():
            for weight, kept, gradient in zip(weights, start, outer, strict=True):
                weight.copy_(kept)
                weight.grad = gradient
        optimizer.step()
        optimizer.zero_grad()

    return judge_loop(model, step, batches(STEPS, 16), optimizer).steps().phases(*PHASES).step_time().closes()


class BrokenSamples(SlowSamples):
    """Samples of which one of forty cannot be read."""

    def __getitem__(self, index: int) -> Tensor:
        if index % 40 == 13:
            rest(self.ms)
            raise ValueError(f"sample {index} is truncated")
        return super().__getitem__(index)


@program("steps", "one batch of five cannot be read: next() raises, and the loop asks for the following one")
def unreadable_batches() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    left_out = 0
    CLOCK.start()
    iterator = iter(BrokenSamples(8 * 125, 0.6).loader())
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            break
        except ValueError:
            left_out += 1
            continue
        train_step(model, optimizer, batch)
        CLOCK.step()
    judge = Judge(session).is_true("batches left out", left_out == 25, left_out, "25")
    return judge.steps(100).phases("data", *PHASES).step_time().throughput(8).closes()


# evaluation, saving, and forwards that look like them


class Patience:
    """An early stop with a name that says nothing: it evaluates each twentieth step and counts."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.bad = model, 0

    def tick(self, number: int) -> bool:
        """Return whether the training has to end."""
        if number % 20 != 19:
            return False
        with evaluated(self.model), torch.no_grad():
            scores = [self.model(batch).mean().item() for batch in batches(6)]
            rest(5)
        self.bad += bool(scores)
        return self.bad >= 5


@program("excluded", "an early stop called tick() evaluates between the update and zero_grad, each twentieth step")
def evaluation_before_zero_grad() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    patience = Patience(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    for number, (batch,) in enumerate(clocked_steps(loader_of(200))):
        loss = model(batch).square().mean()
        with CLOCK.phase("backward"):
            loss.backward()
        optimizer.step()
        stop = patience.tick(number)
        optimizer.zero_grad()
        if stop:
            break
    CLOCK.step()
    return Judge(session).steps(100).phases(*PHASES).step_time().excluded().throughput(8)


@program("excluded", "cached gradients: the batch runs without gradients, then in two chunks with them: all training")
def gradient_cache() -> Judge:
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: tuple[Tensor]) -> None:
        chunks = batch[0].split(4)
        with torch.no_grad():
            vectors = torch.cat([model(chunk) for chunk in chunks])
        vectors.requires_grad_()
        loss = (vectors @ vectors.T).logsumexp(1).mean()
        with CLOCK.phase("backward"):
            (wanted,) = torch.autograd.grad(loss, vectors)
        for chunk, gradient in zip(chunks, wanted.split(4), strict=True):
            surrogate = (model(chunk) * gradient).sum()
            with CLOCK.phase("backward"):
                surrogate.backward()
        optimizer.step()
        optimizer.zero_grad()

    judge = judge_loop(model, step, loader_of(STEPS), optimizer).steps().phases(*PHASES).step_time()
    return excludes_little(judge.throughput(8))


@program("excluded", "checkpoints in rotation: torch.save, a copy of the best one by shutil, the oldest one removed")
def checkpoints_in_rotation() -> Judge:
    model = two_layers()
    model.register_buffer("table", torch.zeros(4_000_000))
    optimizer = sgd(model)
    saved: list[float] = []
    rotated: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def rotate(number: int) -> None:
            began = time.perf_counter()
            path = folder / f"step-{number:04}.pt"
            torch.save({"model": model.state_dict(), "step": number}, path)
            saved.append(time.perf_counter() - began)
            shutil.copyfile(path, folder / "best.pt")
            for old in sorted(folder.glob("step-*.pt"))[:-2]:
                old.unlink()
            rotated.append(time.perf_counter() - began)

        session = autoprof.instrument(model, optimizer=optimizer)
        for number, batch in enumerate(clocked_steps(batches(105))):
            train_step(model, optimizer, batch)
            if number % 15 == 14:
                rotate(number)
        judge = Judge(session).steps().phases(*PHASES)
    reported = sum(one.total_ns for one in judge.summary.stages) / 1e9
    right = 0.95 * sum(saved) - 0.003 <= reported <= 1.05 * sum(rotated) + 0.003
    truth = f"from {sum(saved) * 1e3:.1f} ms, the saving, to {sum(rotated) * 1e3:.1f} ms with the copies"
    return judge.is_true("excluded", right, f"{reported * 1e3:.1f} ms", truth)


@program("excluded", "a target network, copied in the session each 25th step, runs without gradients: it is in no row")
def target_network_copied_in_the_session() -> Judge:
    model = Parts(lambda self, x: self.tail(self.online(x)), online=Sleep(2, 3, "online"), tail=Unlike(1, 1, "tail"))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    target: Any = None
    for number, batch in enumerate(clocked_steps(batches(STEPS))):
        if number % 25 == 0:
            target = copy.deepcopy(model.online)
            target.name = "target"
        with torch.no_grad():
            goal = target(batch)
        update((model(batch) - goal).square().mean(), optimizer)
    judge = Judge(session).steps().phases(*PHASES, "other").step_time()
    hooks = len(target._forward_hooks) + len(target._forward_pre_hooks) + len(target._backward_hooks)
    judge.is_true("hooks of the copy", hooks == 0, hooks, "0")
    return judge.row(r"(.*\.)?online", "forward", "online").row(r"(.*\.)?online", "backward", "online")


# batches


class Bank(Sleep):
    """A bank of the newest vectors, to which each batch is compared."""

    def __init__(self) -> None:
        super().__init__(1.5, 1, "bank")
        self.register_buffer("rows", torch.zeros(64, 16))
        self.place = 0

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.rows[self.place : self.place + len(x)] = x
        self.place = (self.place + len(x)) % 64
        return super().forward(x)


@program("throughput", "pairs for contrastive learning and a memory bank that is a module: 8 pairs are 8 samples")
def pairs_and_a_memory_bank() -> Judge:
    def call(self: Any, one: Tensor, two: Tensor) -> Any:
        return self.bank(self.encoder(one) * self.encoder(two))

    model = Parts(call, encoder=Unlike(2, 3, "encoder"), bank=Bank())
    optimizer = sgd(model)
    pairs = TensorDataset(torch.randn(8 * STEPS, 16), torch.randn(8 * STEPS, 16))

    def step(batch: list[Tensor]) -> None:
        update(model(*batch).square().mean(), optimizer)

    judge = judge_loop(model, step, DataLoader(pairs, batch_size=8, shuffle=True), optimizer)
    judge.steps().phases(*PHASES).step_time().throughput(8)
    for name, phase in (("encoder", "forward"), ("encoder", "backward"), ("bank", "forward"), ("bank", "backward")):
        judge.row(rf"(.*\.)?{name}", phase, name)
    return judge


@program("throughput", "a curriculum of batch sizes: loaders of 4, 8, 16 and 32 samples, 25 batches of each")
def growing_batch_size() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    sizes = (4, 8, 16, 32)
    CLOCK.start()
    for size in sizes:
        for (batch,) in loader_of(25, size):
            train_step(model, optimizer, batch)
            CLOCK.step()
    units = [size for size in sizes for _ in range(25)]
    return Judge(session).steps(100).phases(*PHASES).step_time().throughput(units)


class Shards(IterableDataset[Tensor]):
    """Rows from files of 43 rows; opening a file takes 60 ms, a row takes 0.3 ms."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Tensor]:
        for path in self.paths:
            with CLOCK.phase("data"):
                rest(60)
                rows = np.load(path)
            for row in rows:
                with CLOCK.phase("data"):
                    rest(0.3)
                    sample = torch.from_numpy(row)
                yield sample


def _collate(samples: list[Tensor]) -> Any:
    with CLOCK.phase("data"):
        return default_collate(samples)


@program("throughput", "an IterableDataset of six shards: batches cross the files, the last one of an epoch is short")
def rows_from_shards() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"shard-{number}.npy" for number in range(6)]
        for path in paths:
            np.save(path, np.ones((43, 16), dtype=np.float32))
        loader = DataLoader(Shards(paths), batch_size=8, collate_fn=_collate)
        session = autoprof.instrument(model, optimizer=optimizer)
        CLOCK.start()
        for _ in range(3):
            for batch in loader:
                train_step(model, optimizer, batch)
                CLOCK.step()
        judge = Judge(session)
    judge.steps(99).phases("data", *PHASES).step_time().throughput(([8] * 32 + [2]) * 3)
    return judge.finds("data-wait")


class Sentences(Dataset[Tensor]):
    """Sentences of 4 to 32 tokens."""

    def __init__(self, count: int) -> None:
        self.lengths = [4 + 7 * number % 29 for number in range(count)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Tensor:
        return torch.ones(self.lengths[index])

    def buckets(self, tokens: int) -> list[list[int]]:
        """Return batches of similar lengths that hold at most so many tokens."""
        found: list[list[int]] = [[]]
        for index in sorted(range(len(self)), key=self.lengths.__getitem__):
            if (len(found[-1]) + 1) * self.lengths[index] > tokens:
                found.append([])
            found[-1].append(index)
        random.Random(3).shuffle(found)
        return found


@program("throughput", "a batch sampler with a budget of 64 tokens: two long or sixteen short sentences are a batch")
def budget_of_tokens() -> Judge:
    sentences = Sentences(400)
    buckets = sentences.buckets(64)

    def pad(samples: list[Tensor]) -> Tensor:
        return nn.utils.rnn.pad_sequence(samples, batch_first=True)

    model = two_layers()
    optimizer = sgd(model)
    loader = DataLoader(sentences, batch_sampler=buckets, collate_fn=pad)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), loader, optimizer)
    return judge.steps(len(buckets)).phases(*PHASES).step_time().throughput(list(map(len, buckets)))


# modules


@program("targets", "the stages of a list are called in another random order in each step; one is of another class")
def stages_in_random_order() -> Judge:
    def call(self: Any, x: Tensor) -> Any:
        for number in random.sample(range(5), 5):
            x = self.stages[number](x)
        return x

    stages = [Sleep(1, 1, "stage"), Sleep(1, 1.5, "stage"), Unlike(4, 5, "odd"), Sleep(1.5, 1, "stage")]
    model = Parts(call, stages=nn.ModuleList([*stages, Sleep(1, 1, "stage")]))
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), 150, optimizer)
    judge.steps().phases(*PHASES).step_time().closes()
    for phase in ("forward", "backward"):
        judge.row(r"(.*\.)?stages\.2", phase, "odd")
        judge.row(r"(.*\.)?stages\.([^.]*\*[^.]*|\[.*\]|0|1|3|4)", phase, "stage")
    return judge


@program("targets", "the user's hooks: two stay, one comes and goes in each step; after close() two are left")
def hooks_that_come_and_go() -> Judge:
    model = Parts(lambda self, x: self.second(self.first(x)), first=Sleep(2, 3, "first"), second=Unlike(1, 2, "second"))
    optimizer = sgd(model)
    seen: dict[str, Any] = {}
    model.first.register_forward_hook(lambda module, inputs, output: seen.update(shape=output.shape))
    model.second.register_full_backward_hook(lambda module, before, after: seen.update(norm=after[0].norm()))

    def step(batch: Tensor) -> None:
        handle = model.second.register_forward_pre_hook(lambda module, inputs: seen.update(features=inputs[0].detach()))
        loss = model(batch).square().mean()
        handle.remove()
        update(loss, optimizer)

    judge = judge_loop(model, step, STEPS, optimizer).steps().phases(*PHASES).step_time()
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    left = [sum(len(getattr(module, kind)) for module in model.modules()) for kind in kinds]
    judge.is_true("hooks after close()", left == [1, 0, 1, 0], left, "[1, 0, 1, 0]")
    for phase in ("forward", "backward"):
        judge.row(r"(.*\.)?first", phase, "first")
    return judge


@program("targets", "slices of a Sequential: features[:2] and features[2:] are new containers in each forward")
def slices_of_a_sequential() -> Judge:
    def call(self: Any, x: Tensor) -> Any:
        low = self.features[:2](x)
        return self.head(self.features[2:](low) + low)

    features = nn.Sequential(Sleep(1, 1, "part"), Sleep(2, 2, "part"), Sleep(1, 3, "part"), Sleep(1, 1, "part"))
    model = Parts(call, features=features, head=Unlike(1, 1, "head"))
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), 150, optimizer)
    judge.steps().phases(*PHASES).step_time().closes()
    for phase in ("forward", "backward"):
        judge.row(r"(.*\.)?features\.[^.]+", phase, "part").row(r"(.*\.)?head", phase, "head")
    return judge


# causes


class LinesOfText(Dataset[Tensor]):
    """A data set that counts the lines of its file whenever it is asked for its length."""

    def __len__(self) -> int:
        rest(13)
        return 8 * STEPS

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(16)


@program("findings", "a progress line asks the data set for its length in each step, which counts the file's lines")
def length_for_the_progress() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    loader = DataLoader(LinesOfText(), batch_size=8)
    shown: list[str] = []

    def show_progress(number: int) -> None:
        shown[:] = [f"{8 * number / len(loader.dataset):.0%}"]  # type: ignore[arg-type]

    session = autoprof.instrument(model, optimizer=optimizer)
    for number, batch in enumerate(clocked_steps(loader)):
        train_step(model, optimizer, batch)
        show_progress(number)
    judge = Judge(session).steps().phases(*PHASES).step_time()
    return judge.verdict("unattributed", at("show_progress", "__len__"))


class Ledger:
    """A file of results that several runs share: another one holds its lock for 14 ms whenever this one writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()
        self.asked, self.held = threading.Event(), threading.Event()
        self.stopped = False
        self.other = threading.Thread(target=self._hold, daemon=True)
        self.other.start()

    def _hold(self) -> None:
        with self.path.open("a") as file:
            while self.asked.wait() and not self.stopped:
                self.asked.clear()
                fcntl.flock(file, fcntl.LOCK_EX)
                self.held.set()
                rest(14)
                fcntl.flock(file, fcntl.LOCK_UN)

    def add_result(self, loss: float) -> None:
        """Append a line under the lock."""
        self.asked.set()
        self.held.wait()
        self.held.clear()
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{loss}\n")

    def close(self) -> None:
        """End the other run."""
        self.stopped = True
        self.asked.set()
        self.other.join()


@program("findings", "a file of results is locked by another run for 14 ms in each step: the waiting line is named")
def lock_of_a_shared_file() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "results.txt")

        def step(batch: Tensor) -> None:
            loss = model(batch).square().mean()
            update(loss, optimizer)
            ledger.add_result(loss.item())

        judge = judge_loop(model, step, STEPS, optimizer).steps().phases(*PHASES, "other").step_time()
        ledger.close()
    return judge.verdict("unattributed", at("add_result"))


class Client:
    """A client of a service that allows ten calls, then waits until the next window opens."""

    def __init__(self) -> None:
        self.calls = 0

    def publish(self, loss: float) -> None:
        """Send a value."""
        self.calls += 1
        if self.calls % 10 == 0:
            rest(150)


@program("findings", "a client with a rate limit: nine calls return at once, each tenth one sleeps 150 ms")
def rate_limit_of_a_client() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    client = Client()

    def step(batch: Tensor) -> None:
        loss = model(batch).square().mean()
        update(loss, optimizer)
        client.publish(loss.item())

    # A longer tail of the last step is not counted (docs/reading.md), so that step is not one that waits.
    judge = judge_loop(model, step, 125, optimizer).steps().phases(*PHASES).step_time()
    return judge.verdict(("unattributed", "jitter"), at("publish"), each(10))


@program("findings", "gradients are clipped at a percentile of all norms so far: the step gets longer and longer")
def clipping_by_history() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    norms: list[float] = []

    def clip_by_history() -> None:
        norms.append(float(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))
        rest(0.15 * len(norms))
        with CLOCK.phase("optimizer"):
            nn.utils.clip_grad_norm_(model.parameters(), sorted(norms)[len(norms) // 2])

    def step(batch: Tensor) -> None:
        loss = model(batch).square().mean()
        with CLOCK.phase("backward"):
            loss.backward()
        clip_by_history()
        optimizer.step()
        optimizer.zero_grad()

    judge = judge_loop(model, step, 160, optimizer).steps().phases(*PHASES).step_time()
    return judge.verdict("unattributed", at("clip_by_history")).says("steps get longer", r"\blonger\b|\bslower\b")


class Codebook(Sleep):
    """A codebook that replaces its dead entries in each twelfth forward, which takes 140 ms."""

    def __init__(self) -> None:
        super().__init__(1, 1, "codebook")
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls % 12 == 0:
            rest(140)
        return super().forward(x)


@program("findings", "a codebook replaces its dead entries in each twelfth step: module and rhythm are named")
def codebook_with_restarts() -> Judge:
    def call(self: Any, x: Tensor) -> Any:
        return self.decoder(self.codebook(self.encoder(x)))

    model = Parts(call, encoder=Unlike(2, 3, "encoder"), codebook=Codebook(), decoder=Sleep(2, 3, "decoder"))
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), 144, optimizer)
    return judge.steps().phases("backward", "optimizer").step_time().verdict("hot-module", "codebook", each(12))


# growth


def record_curves(curves: dict[str, list[Tensor]], number: int) -> None:
    """Keep what a figure at the end needs, and more."""
    curves["train/loss" if number % 4 else "train/logits"].append(mebibyte())


@program("defects", "a dictionary of lists, of which each step extends one by a MiB: the variable is named")
def curves_in_a_dictionary() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    curves: dict[str, list[Tensor]] = defaultdict(list)
    session = autoprof.instrument(model, optimizer=optimizer)
    for number, batch in enumerate(clocked_steps(batches(160))):
        train_step(model, optimizer, batch)
        record_curves(curves, number)
    return Judge(session).steps().finds("memory-growth", r"curves|train/l")


def make_tracker() -> Callable[[], int]:
    """Return a function that counts its calls, and keeps more than the count."""
    seen_so_far: list[Tensor] = []

    def track_one() -> int:
        seen_so_far.append(mebibyte())
        return len(seen_so_far)

    return track_one


@program("defects", "a list in a closure that only the inner function knows: variable and function are named")
def list_in_a_closure() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    tracker = make_tracker()

    def step(batch: Tensor) -> None:
        train_step(model, optimizer, batch)
        tracker()

    return judge_loop(model, step, 160, optimizer).steps().finds("memory-growth", "seen_so_far", at("track_one"))


def remember_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Keep the gradients of the step beside the learning rate."""
    optimizer.param_groups[0].setdefault("past_gradients", []).append(mebibyte())


@program("defects", "a list in the optimizer's param_groups gets a MiB in each step: it is named")
def list_in_parameter_groups() -> Judge:
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        train_step(model, optimizer, batch)
        remember_gradients(optimizer)

    judge = judge_loop(model, step, 160, optimizer).steps()
    return judge.finds("memory-growth", "past_gradients|param_groups")


# healthy programs


class Denoiser(Root):
    """A network that predicts the noise of a vector at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(128 + 64, 256)
        self.middle = nn.Sequential(nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU())
        self.leave = nn.Linear(256, 128)

    def forward(self, x: Tensor, moment: Tensor) -> Any:
        angles = moment[:, None] * torch.exp(-torch.arange(32) / 4)
        x = functional.silu(self.enter(torch.cat([x, angles.sin(), angles.cos()], dim=1)))
        return self.leave(self.middle(x) + x)


@program("healthy", "a diffusion model on vectors: random times, an average of the weights by one foreach call")
def diffusion_of_vectors() -> Judge:
    torch.set_num_threads(1)
    model = Denoiser()
    average = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = sgd(model)
    vectors = torch.randn(1024 * 15, 128)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(3):
        for batch in vectors.split(1024):
            noise, moment = torch.randn_like(batch), torch.rand(len(batch))
            level = moment.sqrt()[:, None]
            update((model(batch * (1 - level) + noise * level, moment) - noise).square().mean(), optimizer)
            torch._foreach_lerp_(average, [parameter.detach() for parameter in model.parameters()], 0.01)
            CLOCK.step()
    return Judge(session).steps().phases("forward", "backward").silent()


def small_backbone() -> nn.Sequential:
    """Return a convolutional network for pictures of any size."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


@program("healthy", "triplets: anchor, positive and negative by the same convolutional encoder, three calls a step")
def triplets_of_pictures() -> Judge:
    torch.set_num_threads(1)

    def call(self: Any, *pictures: Tensor) -> list[Tensor]:
        return [functional.normalize(self.encoder(picture)) for picture in pictures]

    model = Parts(call, encoder=small_backbone())
    optimizer = sgd(model)
    pictures = TensorDataset(*(torch.randn(24 * 40, 3, 16, 16) for _ in range(3)))

    def step(batch: list[Tensor]) -> None:
        update(functional.triplet_margin_loss(*model(*batch)), optimizer)

    judge = judge_loop(model, step, DataLoader(pictures, batch_size=24), optimizer)
    return judge.steps().phases("forward", "backward").throughput(24).silent()


@program("healthy", "a buffer of 40 entries of random sizes, one is replaced each sixth step: memory goes up and down")
def buffer_of_random_sizes() -> Judge:
    def entry() -> Tensor:
        return torch.ones(random.randint(2**14, 2**19))

    entries = [entry() for _ in range(40)]
    model = Chain(Sleep(4, 5, "first"), Sleep(2, 3, "second"))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    for number, batch in enumerate(clocked_steps(batches(200))):
        train_step(model, optimizer, batch)
        if number % 6 == 0:
            entries[random.randrange(40)] = entry()
    return Judge(session).steps().phases(*PHASES).step_time().silent()


@program("healthy", "ten labelled batches in a cycle beside new ones, a line of CSV each step, a bar each tenth step")
def cycle_beside_new_batches() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    pairs = zip(loader_of(120), itertools.cycle(loader_of(10)), strict=False)
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, ["step", "loss"])
        rows.writeheader()
        session = autoprof.instrument(model, optimizer=optimizer)
        for number, ((new,), (labelled,)) in enumerate(clocked_steps(pairs)):
            loss = model(torch.cat([new, labelled])).square().mean()
            update(loss, optimizer)
            rows.writerow({"step": number, "loss": loss.item()})
            if number % 10 == 0:
                sys.stderr.write(f"\r{number}/120")
                file.flush()
        judge = Judge(session)
    return judge.steps().phases(*PHASES).step_time().silent()


class Coupling(nn.Module):
    """A coupling layer of a normalizing flow."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = x.chunk(2, dim=1)
        scale, shift = self.net(kept).chunk(2, dim=1)
        scale = torch.tanh(scale)
        return torch.cat([moved * scale.exp() + shift, kept], dim=1), scale.sum(1)


class Flow(Root):
    """A flow of four coupling layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling() for _ in range(4))

    def forward(self, x: Tensor) -> Any:
        volume = torch.zeros(len(x))
        for layer in self.layers:
            x, change = layer(x)
            volume = volume + change
        return (x.square().sum(1) / 2 - volume).mean()


@program("healthy", "a normalizing flow of four coupling layers, with the loss as the result of its forward")
def normalizing_flow() -> Judge:
    torch.set_num_threads(1)
    model = Flow()
    optimizer = sgd(model)
    vectors = torch.randn(1024 * 20, 128)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(2):
        for batch in vectors.split(1024):
            update(model(batch), optimizer)
            CLOCK.step()
    return Judge(session).steps().phases("forward", "backward").silent()


@program("healthy", "two large and four small crops of each picture by one backbone, in two calls of different sizes")
def crops_of_two_sizes() -> Judge:
    torch.set_num_threads(1)

    def call(self: Any, crops: list[Tensor]) -> Tensor:
        large, small = torch.cat(crops[:2]), torch.cat(crops[2:])
        return torch.cat([self.head(self.backbone(large)), self.head(self.backbone(small))])

    model = Parts(call, backbone=small_backbone(), head=nn.Linear(64, 128))
    optimizer = sgd(model)
    sizes = (16, 16, 8, 8, 8, 8)
    pictures = TensorDataset(*(torch.randn(24 * 50, 3, size, size) for size in sizes))

    def step(crops: list[Tensor]) -> None:
        vectors = functional.normalize(model(crops))
        update((vectors @ vectors.T).square().mean(), optimizer)

    judge = judge_loop(model, step, DataLoader(pictures, batch_size=24, shuffle=True), optimizer)
    return judge.steps().phases("forward", "backward").throughput(24).silent()
