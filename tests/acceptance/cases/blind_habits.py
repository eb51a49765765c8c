"""Loops written without a look at autoprof's code: habits of scripts, several causes, short runs, healthy ones."""

import asyncio
import hashlib
import os
import pickle
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

import autoprof

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import (
    Chain,
    Parts,
    Root,
    Sleep,
    batches,
    evaluated,
    instrumented,
    judge_loop,
    rest,
    sgd,
    sleep_op,
    train_step,
    two_layers,
    update,
    weight,
)
from ..registry import program
from .blind_causes import fit_from, fit_with, rhythm_of

STEPS: Final = 80
HERE: Final = r"blind_habits\.py:\d+"
TOO_FEW: Final = (
    r"too few|too short|few(?:er)? (?:recorded )?steps|(?:needs?|after|at least) \d+ (?:recorded )?steps|\d+ are needed"
    r"|recorded steps \(\d+ needed"
)
"""Sentences that say that a run had too few steps for a verdict."""


class Vectors(Root):
    """Linear layers: many parameters, some milliseconds of arithmetic."""

    def __init__(self, depth: int = 30) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(depth)))

    def forward(self, x: Tensor) -> Any:
        return self.layers(x)


def vector_batches(count: int, size: int = 64) -> Iterator[Tensor]:
    """Yield four batches of vectors in turn."""
    made = [torch.randn(size, 128) for _ in range(4)]
    for number in range(count):
        yield made[number % 4]


# code of the loop


def rewrite_history(path: Path, history: list[float]) -> None:
    """Write all values so far, and wait until the disk has them."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{value:.6f}\n" for value in history)
        file.flush()
        os.fsync(file.fileno())
    rest(80)


@program("findings", "the whole history is written to a slow disk after each tenth step, 80 ms")
def history_written_each_tenth_step() -> Judge:
    history: list[float] = []

    def after(number: int, batch: Tensor) -> None:
        history.append(float(batch.mean()))
        if number % 10 == 0:
            rewrite_history(Path("history.txt"), history)

    judge = fit_with(two_layers(), after, 155).steps().phases("forward", "backward", "other").run_time()
    judge.verdict(("unattributed", "jitter", "logging"), "rewrite_history", also=("unattributed", "jitter"))
    return judge.names("each tenth step", rhythm_of(10), "unattributed", "jitter")


def draw_curves(values: list[float], size: int = 160) -> bytes:
    """Draw a curve into a picture, pixel by pixel."""
    rows = []
    for y in range(size):
        for x in range(2 * size):
            value = values[x * len(values) // (2 * size)]
            rows.append(255 if abs(value * size / 2 + size / 2 - y) < 1 + x % 2 else 0)
    return bytes(rows)


@program("defects", "curves are drawn in Python after each fifth step")
def curves_drawn_each_fifth_step() -> Judge:
    values: list[float] = []

    def after(number: int, batch: Tensor) -> None:
        values.append(float(batch[0, 0].tanh()))
        if number % 5 == 0:
            for _ in range(4):
                draw_curves(values)

    judge = fit_with(two_layers(), after, 120).steps().phases("forward", "backward")
    judge.verdict(("unattributed", "jitter"), HERE, "draw_curves|after", also=("unattributed", "jitter"))
    return judge.names("each fifth step", rhythm_of(5), "unattributed", "jitter")


def area_so_far(scores: list[Any]) -> float:
    """Rank all scores of the run."""
    ranks = np.concatenate(scores).argsort(kind="stable")
    return float(ranks[: len(ranks) // 2].mean() / len(ranks))


@program("defects", "an AUC over all predictions since the beginning, in every step: it takes longer and longer")
def metric_over_the_whole_run() -> Judge:
    scores: list[Any] = []

    def after(number: int, batch: Tensor) -> None:
        scores.append(np.random.rand(1500))
        area_so_far(scores)

    judge = fit_with(two_layers(), after, 120).steps().phases("forward", "backward", "other").step_time()
    return judge.verdict("unattributed", HERE, "area_so_far|after")


def log_each_sample(losses: Tensor) -> dict[str, float]:
    """Read each sample's part of each loss on its own."""
    return {
        f"sample{row}/loss{column}": losses[row, column].item()
        for row in range(losses.shape[0])
        for column in range(losses.shape[1])
    }


@program("defects", "2,500 numbers of a tensor are read one by one with .item() in every step")
def item_of_each_sample() -> Judge:
    losses = torch.rand(100, 25)
    judge = fit_with(two_layers(), lambda number, batch: log_each_sample(losses)).steps().phases("forward", "other")
    return judge.verdict("unattributed", HERE, "log_each_sample|lambda")


def log_histograms(model: nn.Module) -> dict[str, Any]:
    """Make a histogram of each weight and each gradient."""
    result = {}
    for name, parameter in model.named_parameters():
        result[name] = np.histogram(parameter.detach().numpy(), bins=64)
    return result


@program("defects", "histograms of all weights by numpy in every step")
def histograms_of_all_weights() -> Judge:
    model = Vectors()
    judge = fit_with(model, lambda number, batch: log_histograms(model), data=vector_batches(60)).steps()
    return judge.phases("forward", "backward", "other").verdict("unattributed", HERE, "log_histograms|lambda")


def hash_of_weights(model: nn.Module) -> str:
    """Hash all weights, to prove that a run is reproducible."""
    digest = hashlib.sha512()
    for value in model.state_dict().values():
        digest.update(repr(value.flatten()[::8].tolist()).encode())
    return digest.hexdigest()


@program("defects", "a hash of the weights after every step, to compare two runs")
def weights_hashed_each_step() -> Judge:
    model = Vectors(20)
    judge = fit_with(model, lambda number, batch: hash_of_weights(model), data=vector_batches(60)).steps()
    return judge.phases("forward", "backward", "other").verdict("unattributed", HERE, "hash_of_weights|lambda")


def to_channels_first(images: Tensor) -> Tensor:
    """Turn bytes with the channels last into floats with the channels first."""
    return (images.float() / 255 - 0.5).permute(0, 3, 1, 2).contiguous()


@program("defects", "pictures are turned to floats with the channels first in the loop, in every step")
def channels_turned_in_the_loop() -> Judge:
    images = torch.randint(0, 255, (24, 224, 224, 3), dtype=torch.uint8)
    model = Parts(lambda net, x: net.body(x[:, :, ::56, ::56].flatten(1)), body=nn.Linear(48, 16))
    optimizer = sgd(model)
    judge = judge_loop(
        model, lambda number: train_step(model, optimizer, to_channels_first(images)), range(80), optimizer
    )
    return judge.steps().phases("backward", "other").verdict("unattributed", HERE, "to_channels_first|lambda")


@program("findings", "a lock of a thread that publishes the metrics: each step waits for it")
def lock_of_a_publisher() -> Judge:
    lock, ended = threading.Lock(), threading.Event()
    free = threading.Event()

    def publish() -> None:
        while not ended.is_set():
            with lock:
                free.set()
                rest(25)
            free.clear()
            rest(1)

    def count_samples() -> None:
        free.wait(0.5)  # the publisher holds the lock now
        with lock:
            pass

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    judge = fit_with(two_layers(), lambda number, batch: count_samples())
    ended.set()
    thread.join()
    return (
        judge.steps()
        .phases("forward", "backward", "other")
        .verdict("unattributed", HERE, "count_samples|lambda", also=("jitter",))
    )


@program("findings", "a throttle around the batches, in no loader: a generator sleeps 12 ms before each of them")
def throttled_batches() -> Judge:
    def throttle(data: Iterable[Tensor]) -> Iterator[Tensor]:
        for batch in data:
            rest(12)
            yield batch

    model = two_layers()
    judge = fit_from(throttle(batches(STEPS)), model).steps().phases("forward", "backward").step_time()
    return judge.verdict(("unattributed", "data-wait"), HERE, "throttle|rest")


@program("findings", "a timer of the program's own, a with block around each step, sleeps 10 ms when it ends")
def timer_that_sleeps() -> Judge:
    @contextmanager
    def own_timer() -> Iterator[None]:
        yield
        rest(10)

    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for batch in batches(STEPS):
        with own_timer():
            train_step(model, optimizer, batch)
        CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time()
    return judge.verdict("unattributed", HERE, "own_timer|rest")


@program("findings", "asyncio.run() in every step, for a setting that a server has")
def event_loop_in_each_step() -> Judge:
    async def ask_server() -> float:
        await asyncio.sleep(0.012)
        return 0.1

    judge = fit_with(two_layers(), lambda number, batch: asyncio.run(ask_server())).steps()
    return judge.phases("forward", "backward", "other").verdict("unattributed", HERE, "asyncio|ask_server|lambda")


@program("findings", "a thread is started in each step to send the metrics, and waited for at once")
def thread_joined_in_each_step() -> Judge:
    def send_and_wait(number: int, batch: Tensor) -> None:
        sender = threading.Thread(target=rest, args=(14,))
        sender.start()
        sender.join()

    judge = fit_with(two_layers(), send_and_wait).steps().phases("forward", "backward", "other")
    return judge.verdict("unattributed", HERE, "send_and_wait|join")


@program("findings", "an audit of 4 ms after each of four micro-batches: 16 ms of each step")
def audit_of_micro_batches() -> Judge:
    def audit(batch: Tensor) -> None:
        rest(4)

    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for number, batch in enumerate(batches(4 * 60), 1):
        update((model(batch) / 4).square().mean())
        audit(batch)
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time()
    return judge.throughput(32, may_be_absent=True).verdict("unattributed", HERE, "audit")


def assert_finite(model: nn.Module) -> None:
    """Check weights and gradients, element by element of a small sample of each."""
    for name, parameter in model.named_parameters():
        for value in parameter.detach().flatten()[:400].tolist():
            if not -1e6 < float(f"{value:.4f}") < 1e6:
                raise ValueError(name)
        if not bool(torch.isfinite(parameter).all()):
            raise ValueError(name)


@program("defects", "every weight is checked for NaN in Python after every step")
def checked_for_nan() -> Judge:
    model = Vectors(20)
    judge = fit_with(model, lambda number, batch: assert_finite(model), data=vector_batches(80)).steps()
    return judge.phases("forward", "backward", "other").verdict("unattributed", HERE, "assert_finite|lambda")


def publish_epoch(number: int) -> None:
    """Wait for a server that shows the epochs."""
    rest(220)


@program("findings", "a server is told of each epoch of twenty steps, 220 ms: its function and the rhythm are named")
def server_told_of_each_epoch() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for epoch in range(8):
        for number, batch in enumerate(batches(20)):
            train_step(model, optimizer, batch)
            if number == 19:
                publish_epoch(epoch)
            CLOCK.step()
    for batch in batches(2):  # nothing ends the last step of a loop: it ends with its update where that is most of it
        train_step(model, optimizer, batch)
        CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward").run_time().excludes_nothing()
    either = ("unattributed", "jitter")
    return judge.verdict(either, "publish_epoch", also=either).names("each 20th step", rhythm_of(20), *either)


# saving and validation


@program("defects", "checkpoints each tenth step by torch.save, pickle and numpy in turn: all of them are excluded")
def checkpoints_by_three_means() -> Judge:
    ballast = torch.randn(12_000_000)

    def save(number: int, batch: Tensor) -> None:
        if number % 10:
            return
        with CLOCK.phase(EXCLUDED):
            if number % 30 == 10:
                torch.save({"step": number, "weights": ballast}, "checkpoint.pt")
            elif number % 30 == 20:
                with Path("checkpoint.pickle").open("wb") as file:
                    pickle.dump({"step": number, "weights": ballast.numpy()}, file)
            else:
                np.save("checkpoint.npy", ballast.numpy())

    judge = fit_with(two_layers(), save, 90).steps().phases("forward", "backward").excluded(relative=0.1)
    saved = sum(step.phases[EXCLUDED] for step in CLOCK.steps)
    whole = sum(step.wall_ns for step in CLOCK.steps)
    if saved > 0.2 * whole:
        return judge.verdict("excluded", "sav")
    return judge.silent("unattributed", "jitter", "data-wait", "optimizer")


@program("healthy", "checkpoints are written by a thread of the program while the training goes on")
def saving_in_a_thread_is_healthy() -> Judge:
    ballast, threads = torch.randn(500_000), list[threading.Thread]()

    def save(number: int, batch: Tensor) -> None:
        if number % 25 == 0:
            threads.append(threading.Thread(target=torch.save, args=(ballast, "checkpoint.pt")))
            threads[-1].start()

    judge = fit_with(Chain(Sleep(6, 6, "stem"), Sleep(5, 6, "body")), save, 120)
    for thread in threads:
        thread.join()
    return judge.steps().phases("forward", "backward").step_time().excludes_nothing().silent()


def decode_captions(output: Tensor) -> None:
    """Take long, as a beam search in Python does."""
    rest(150)


@program("defects", "validation after each 30th step, of which a slow metric takes nearly all: its function is named")
def slow_metric_of_the_validation() -> Judge:
    model = two_layers()

    def after(number: int, batch: Tensor) -> None:
        if number % 30 == 0:
            with evaluated(model), torch.no_grad():
                for held_out in batches(4):
                    decode_captions(model(held_out))

    judge = fit_with(model, after, 120).steps().phases("forward", "backward").excluded()
    return judge.verdict("excluded", "validation", "decode_captions")


# two causes, and causes that begin late


class Decoded(Dataset[Tensor]):
    """Samples that take a known time each."""

    def __init__(self, count: int, ms: float) -> None:
        self.count, self.ms = count, ms

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        with CLOCK.phase("data"):
            rest(self.ms)
            return torch.zeros(16)


def train_with_three_causes(sample_ms: float, optimizer_ms: float, code_ms: float) -> Judge:
    """Train with a slow loader, a slow optimizer and slow code of the loop."""

    def update_dashboard() -> None:
        rest(code_ms)

    model = two_layers()
    optimizer = sgd(model, optimizer_ms)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in DataLoader(Decoded(4 * 70, sample_ms), batch_size=4):
        train_step(model, optimizer, batch)
        update_dashboard()
        CLOCK.step()
    return Judge(session).steps().phases("data", "forward", "backward", "optimizer", "other").step_time()


@program("findings", "three causes: the loader takes 24 ms, the optimizer 14, the loop 13: the loader leads")
def loader_leads_three_causes() -> Judge:
    others = ("optimizer", "unattributed")
    judge = train_with_three_causes(6, 14, 13).verdict("data-wait", HERE, "__getitem__", also=others)
    return judge.finds("optimizer").finds("unattributed", HERE, "update_dashboard")


@program("findings", "three causes: the loop takes 26 ms, the loader 12, the optimizer 10: the loop leads")
def loop_leads_three_causes() -> Judge:
    others = ("optimizer", "data-wait")
    judge = train_with_three_causes(3, 10, 26).verdict("unattributed", HERE, "update_dashboard", also=others)
    return judge.finds("data-wait", "__getitem__")


@program("findings", "a debugging aid of 18 ms is switched on at step 80 of 160: named, and since when")
def cause_from_the_middle() -> Judge:
    def check_everything() -> None:
        rest(18)

    def after(number: int, batch: Tensor) -> None:
        if number >= 80:
            check_everything()

    judge = fit_with(two_layers(), after, 160).steps().phases("forward", "backward").run_time()
    judge.verdict(("unattributed", "jitter"), HERE, "check_everything", also=("jitter", "unattributed"))
    return judge.says(
        "since step 80", r"(?:since|from|after|at|in|before) (?:step )?(?:7\d|8\d)\b", "unattributed", "jitter"
    )


@program("findings", "the user interrupts the training in step 60, and the report has the cause all the same")
def interrupted_in_the_middle() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    try:
        for number, batch in enumerate(DataLoader(Decoded(4 * 200, 5), batch_size=4), 1):
            train_step(model, optimizer, batch)
            CLOCK.step()
            if number == 60:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    return Judge(session).steps().phases("data", "forward", "backward").verdict("data-wait", HERE, "__getitem__")


# short runs


def short_run(steps: int) -> Judge:
    """Train for a few steps of which a function of the loop takes most."""

    def write_picture() -> None:
        rest(40)

    judge = fit_with(two_layers(), lambda number, batch: write_picture(), steps)
    return judge.steps().phases("forward", "backward", "other").excludes_nothing().silent("jitter", "memory-growth")


@program("report", "a run of 8 slow steps, 5 of them judged: the cause, or that no sample names it")
def eight_steps() -> Judge:
    judge = short_run(8).silent("data-wait", "hot-module", "optimizer", "excluded")
    return judge.finds("unattributed", "write_picture|no sample of its stack|too few to name the lines")


@program("report", "a run of 12 slow steps: the cause, or that the steps are too few for a verdict")
def twelve_steps() -> Judge:
    judge = short_run(12).silent("data-wait", "hot-module", "optimizer", "excluded")
    if judge.found("unattributed"):
        return judge.finds("unattributed", "write_picture")
    return judge.says("too few steps", TOO_FEW)


@program("findings", "a run of 25 slow steps: the cause is named all the same")
def twenty_five_steps() -> Judge:
    return short_run(25).recorded(0.9).verdict("unattributed", HERE, "write_picture|lambda")


@program("report", "a healthy run of 7 steps, 4 of them recorded: nothing is accused, and it is not called healthy")
def seven_healthy_steps() -> Judge:
    judge = fit_with(Chain(Sleep(30, 50, "stem"), Sleep(20, 40, "body")), steps=7).steps().phases("forward", "backward")
    judge.silent()
    return judge.says("too few steps", TOO_FEW)


# healthy programs


class Bursts(Dataset[Tensor]):
    """Samples of which one in twenty takes long; two workers have time for that."""

    def __len__(self) -> int:
        return 4 * 100

    def __getitem__(self, index: int) -> Tensor:
        rest(40 if index % 20 == 7 else 1)
        return torch.zeros(16)


@program("healthy", "a loader of two workers with irregular samples, which prefetching hides")
def irregular_loader_is_healthy() -> Judge:
    loader = DataLoader(Bursts(), batch_size=4, num_workers=2, prefetch_factor=6, persistent_workers=True)
    model = Chain(Sleep(6, 9, "stem"), Sleep(5, 10, "body"))
    return fit_from(loader, model).steps().phases("forward", "backward").silent()


@program("healthy", "the first step takes 1.5 s, as for buffers and kernels; the others are as they should be")
def slow_first_step_is_healthy() -> Judge:
    model = two_layers()
    first = model[0]

    def after(number: int, batch: Tensor) -> None:
        first.forward_ms = 2  # type: ignore[assignment]

    first.forward_ms = 1500  # type: ignore[assignment]
    return fit_with(model, after, 140).steps().phases("forward", "backward").step_time().silent()


class PackedReader(Root):
    """An LSTM over packed sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(300, 96), nn.LSTM(96, 96, batch_first=True, bidirectional=True)
        self.head = nn.Linear(192, 5)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(self.embed(x), lengths, batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        return self.head(hidden.transpose(0, 1).flatten(1))


@program("healthy", "a bidirectional LSTM over packed sequences of random lengths")
def packed_sequences_is_healthy() -> Judge:
    model = PackedReader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    chosen = random.Random(3)

    def step(number: int) -> None:
        lengths = torch.tensor([chosen.randint(30, 50) for _ in range(24)])
        words = torch.randint(0, 300, (24, 50))
        update(functional.cross_entropy(model(words, lengths), words[:, 0] % 5), optimizer)

    return judge_loop(model, step, range(60), optimizer).steps().phases("forward", "backward").silent()


@program("healthy", "a small model with steps of two milliseconds, 1,200 of them")
def short_steps_is_healthy() -> Judge:
    model = Chain(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    made = [(torch.randn(192, 64), torch.randint(0, 8, (192,))) for _ in range(4)]

    def step(number: int) -> None:
        x, y = made[number % 4]
        update(functional.cross_entropy(model(x), y), optimizer)

    return judge_loop(model, step, range(1200), optimizer).steps().phases("forward", "backward").silent()


@program("healthy", "a big batch: 26 steps of a quarter of a second each, and nothing else")
def big_batch_is_healthy() -> Judge:
    body = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
    model = Parts(lambda net, x: net.head(net.body(x).mean((2, 3))), body=body, head=nn.Linear(24, 10))
    x = torch.randn(64, 3, 48, 48)
    return fit_with(model, data=[x] * 26).steps().phases("forward", "backward").silent()


class OfLength(Root):
    """A model whose time is that of its input's length."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weight() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for one in self.weights:
            x = sleep_op(x, one, len(x) / 8, len(x) / 6)
        return x


@program("healthy", "batches by buckets of similar length: the longest step takes 1.7 times the shortest one's time")
def buckets_is_healthy() -> Judge:
    chosen = random.Random(4)
    data = (torch.randn(chosen.choice((20, 24, 28, 34)), 16) for _ in range(110))
    return fit_with(OfLength(), data=data).steps().phases("forward", "backward").step_time().silent()


@program("healthy", "a rare flush: one step of 150 takes 0.4 s, which is no cause worth a verdict's place")
def single_long_step_is_healthy() -> Judge:
    def after(number: int, batch: Tensor) -> None:
        if number == 120:
            rest(400)

    judge = fit_with(Chain(Sleep(6, 8, "stem"), Sleep(5, 7, "body")), after, 150).steps().run_time()
    return judge.phases("forward", "backward").silent()


@program("healthy", "bookkeeping of a careful loop takes 6 % of the step: below what a verdict accuses")
def careful_bookkeeping_is_healthy() -> Judge:
    def note_down(number: int, batch: Tensor) -> None:
        rest(1.5)

    model = Chain(Sleep(6, 7, "stem"), Sleep(5, 6, "body"))
    return fit_with(model, note_down, 100).steps().phases("forward", "backward", "other").step_time().silent()


# names from the code of a trainer


class Trainer:
    """A trainer that calls back what is registered, as frameworks do."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.optimizer = model, sgd(model)
        self.callbacks: list[Callable[[int], object]] = []

    def run(self, steps: int) -> Judge:
        """Train and call all callbacks after each step."""
        session = autoprof.instrument(self.model, optimizer=self.optimizer)
        CLOCK.start()
        for number, batch in enumerate(batches(steps)):
            train_step(self.model, self.optimizer, batch)
            self.notify(number)
            CLOCK.step()
        return Judge(session)

    def notify(self, number: int) -> None:
        """Call all callbacks."""
        for callback in self.callbacks:
            callback(number)


@program("findings", "one of five callbacks of a trainer takes 15 ms: it is named, not the loop over the callbacks")
def slow_one_of_five_callbacks() -> Judge:
    def upload_sample(number: int) -> None:
        rest(15)

    trainer = Trainer(two_layers())
    trainer.callbacks += [lambda number: number, lambda number: rest(0.1), upload_sample, lambda number: None, print]
    judge = trainer.run(STEPS).steps().phases("forward", "backward", "other")
    return judge.finds("unattributed", HERE, "upload_sample")


@program("findings", "two slow functions of the loop, 14 ms and 7 ms: both are named, the longer one first")
def two_functions_of_the_loop() -> Judge:
    def resize_previews() -> None:
        rest(14)

    def count_words() -> None:
        rest(7)

    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for batch in batches(STEPS):
        count_words()
        train_step(model, optimizer, batch)
        resize_previews()
        CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward", "other").step_time()
    return judge.verdict("unattributed", r"(?s)resize_previews.*count_words")


@program("findings", "a learning rate that is read from a file for 9 ms, between backward and the optimizer's step")
def rate_read_from_a_file() -> Judge:
    Path("rate.txt").write_text("0.0001", encoding="utf-8")

    def read_rate() -> float:
        rest(9)
        return float(Path("rate.txt").read_text(encoding="utf-8"))

    model = two_layers()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for batch in batches(STEPS):
        update(model(batch).square().mean())
        for group in optimizer.param_groups:
            group["lr"] = read_rate()
        optimizer.step()
        optimizer.zero_grad()
        CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward", "optimizer", "other")
    return judge.silent("optimizer").verdict("unattributed", HERE, "read_rate")
