"""Causes that were written without a look at autoprof's code: slow loaders, slow modules and memory that grows."""

import copy
import functools
import importlib
import io
import queue
import random
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, Dataset, IterableDataset

import autoprof

from ..clock import CLOCK
from ..judge import Judge
from ..parts import (
    Chain,
    Parts,
    Root,
    Sleep,
    Unlike,
    batches,
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

STEPS: Final = 80
HERE: Final = r"blind_causes\.py:\d+"

After = Callable[[int, Tensor], object]


def rhythm_of(every: int) -> str:
    """Return a pattern for the sentences that say that one step of so many is long."""
    several = rf"steps such as (?:{every}|{every + 1}|\d+)(?:, \d+)+"
    return rf"\b{every}(?:st|nd|rd|th)\b|(?:every|each|in|of|per) {every}\b|\b{every} (?:steps|batches)|{several}"


def fit_from(loader: Any, model: nn.Module, epochs: int = 1, optimizer: Any = None) -> Judge:
    """Train with a plain loop over a loader; each batch is one step of the program's clock."""
    optimizer = optimizer or sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(epochs):
        for batch in loader:
            train_step(model, optimizer, batch)
            CLOCK.step()
    return Judge(session)


def fit_with(model: nn.Module, after: After | None = None, steps: int = STEPS, data: Iterable[Tensor] = ()) -> Judge:
    """Train on random batches, with something after each step that gets its number and its batch."""
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        train_step(model, optimizer, batch)
        if after is not None:
            after(len(CLOCK.steps) + 1, batch)

    return judge_loop(model, step, data or steps, optimizer)


# the wait for data


class Remote(Dataset[Tensor]):
    """Samples on a network drive; they are on the local disk after the first epoch."""

    def __init__(self, count: int) -> None:
        self.cached = [False] * count

    def __len__(self) -> int:
        return len(self.cached)

    def __getitem__(self, index: int) -> Tensor:
        with CLOCK.phase("data"):
            return self.read_cold(index)

    def read_cold(self, index: int) -> Tensor:
        """Wait for the network unless the sample was read before."""
        if not self.cached[index]:
            rest(3)
        self.cached[index] = True
        return torch.zeros(16)


@program("findings", "a cold cache: only the first of four epochs waits for its samples, 24 ms a batch")
def cold_cache_in_the_first_epoch() -> Judge:
    judge = fit_from(DataLoader(Remote(8 * 25), batch_size=8), two_layers(), 4)
    judge.steps().run_time().verdict("data-wait", "read_cold", also=("jitter",))
    when = (
        r"(?:until|since|up to|in|from|before|after) (?:the )?(?:first )?steps? \d+|steps? \d+ (?:to|-) \d+"
        r"|(?:first|beginning)[^.;]{0,20}(?:epoch|batches|of the run)|the steps up to \d+"
    )
    return judge.says("it was the beginning of the run", when, "data-wait")


class Remainder(Dataset[Tensor]):
    """Samples of which the last ones lie on a slow disk."""

    def __len__(self) -> int:
        return 8 * 20

    def __getitem__(self, index: int) -> Tensor:
        with CLOCK.phase("data"):
            return self.read_slow_disk() if index >= 8 * 18 else torch.zeros(16)

    def read_slow_disk(self) -> Tensor:
        """Wait for the slow disk."""
        rest(12)
        return torch.zeros(16)


@program("findings", "the last two of twenty batches of each epoch come from a slow disk, 96 ms each")
def end_of_each_epoch_is_slow() -> Judge:
    judge = fit_from(DataLoader(Remainder(), batch_size=8), two_layers(), 6).steps().phases("data", "forward")
    return judge.verdict("data-wait", "read_slow_disk", also=("jitter",))


class Unequal(Dataset[Tensor]):
    """Five classes in turn at random, of which one gets a deformation."""

    def __init__(self) -> None:
        self.classes = random.Random(1).choices(range(5), k=4 * 100)

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: int) -> Tensor:
        with CLOCK.phase("data"):
            sample = torch.zeros(16)
            if self.classes[index] == 3:
                sample = self.deform(sample)
            return sample

    def deform(self, sample: Tensor) -> Tensor:
        """Take long, as an elastic deformation does."""
        rest(18)
        return sample + 1


@program("findings", "an augmentation of 18 ms that only one of five classes gets, at random places")
def slow_augmentation_of_one_class() -> Judge:
    judge = fit_from(DataLoader(Unequal(), batch_size=4), two_layers()).steps().phases("data", "forward", "backward")
    return judge.verdict("data-wait", "deform", also=("jitter",))


class Records(Dataset[Tensor]):
    """Records in a Python list, copied whole for safety before they are changed."""

    def __init__(self) -> None:
        values = [[float(place), [place, str(place)]] for place in range(600)]
        self.records = [{"id": number, "values": values} for number in range(8 * STEPS)]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Tensor:
        with CLOCK.phase("data"):
            record = copy.deepcopy(self.records[index])
            record["values"] = [number for number, _ in record["values"]]  # type: ignore[attr-defined]
            return torch.tensor(record["values"][:16])  # type: ignore[index]


@program("defects", "a data set in a Python list that makes a deep copy of each record")
def deep_copy_of_each_record() -> Judge:
    judge = fit_from(DataLoader(Records(), batch_size=8), two_layers()).steps().phases("data")
    return judge.verdict("data-wait", HERE, "deepcopy")


class Archive(Dataset[Tensor]):
    """Samples in one archive, which is opened anew for each of them."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(16, np.float32))
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(1500):
                archive.writestr(f"{number}.npy", buffer.getvalue())

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        with CLOCK.phase("data"), zipfile.ZipFile(self.path) as archive:
            return torch.from_numpy(np.load(io.BytesIO(archive.read(f"{index % 1500}.npy"))))


@program("defects", "a zip archive of 1,500 members is opened again for every sample")
def archive_opened_for_each_sample() -> Judge:
    loader = DataLoader(Archive(Path("samples.zip"), 2 * 60), batch_size=2)
    return fit_from(loader, two_layers()).steps().phases("data").verdict("data-wait", HERE, "zipfile|ZipFile")


class Filtered(IterableDataset[Tensor]):
    """Samples that are decoded first and then, nine of ten, rejected."""

    def __iter__(self) -> Iterator[Tensor]:
        for number in range(4 * 10 * STEPS):
            with CLOCK.phase("data"):
                sample = self.decode_sample(number)
            if number % 10 == 0:
                yield sample

    def decode_sample(self, number: int) -> Tensor:
        """Decode a sample."""
        rest(0.4)
        return torch.full((16,), number / 1e4)


@program("defects", "a stream that decodes every sample and rejects nine of ten")
def decoded_and_rejected() -> Judge:
    judge = fit_from(DataLoader(Filtered(), batch_size=4), two_layers()).steps().phases("data", relative=0.08)
    return judge.verdict("data-wait", HERE, "decode_sample")


class Indexed(IterableDataset[Tensor]):
    """A stream that builds its index again at the beginning of each epoch."""

    def __iter__(self) -> Iterator[Tensor]:
        with CLOCK.phase("data"):
            self.build_index()
        for _ in range(8 * 15):
            yield torch.zeros(16)

    def build_index(self) -> None:
        """Take long, as a walk through all folders does."""
        rest(160)


@program("findings", "the index of the data is built anew for each epoch of fifteen batches, 160 ms")
def index_of_each_epoch() -> Judge:
    judge = fit_from(DataLoader(Indexed(), batch_size=8), two_layers(), 8).steps().run_time()
    return judge.verdict(("data-wait", "jitter"), "build_index|__iter__", also=("data-wait", "jitter"))


class Plain(Dataset[Tensor]):
    """Many samples that cost nothing."""

    def __len__(self) -> int:
        return 300_000

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(16)


@program("defects", "next(iter(loader)) in every step: the whole data set is shuffled for one batch")
def new_iterator_for_each_batch() -> Judge:
    model, loader = two_layers(), DataLoader(Plain(), batch_size=8, shuffle=True)
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(60):
        with CLOCK.phase("data"):
            batch = next(iter(loader))
        train_step(model, optimizer, batch)
        CLOCK.step()
    judge = Judge(session).steps().phases("forward", "backward").step_time()
    return judge.verdict(("data-wait", "unattributed"), f"{HERE}|iter|sampler")


class Images(Dataset[Tensor]):
    """A set of samples of a known length each."""

    def __init__(self, count: int, ms: float) -> None:
        self.count, self.ms = count, ms

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        rest(self.ms)
        return torch.zeros(16)


class Unlabelled(Images):
    """The same, of which the samples are read by a function of their own."""

    def __getitem__(self, index: int) -> Tensor:
        return self.read_unlabelled(index)

    def read_unlabelled(self, index: int) -> Tensor:
        """Read a sample."""
        rest(self.ms)
        return torch.ones(16)


@program("findings", "two loaders in a zip, one of them thirty times as slow: the slow one is named")
def slower_one_of_two_loaders() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    fast, slow = DataLoader(Images(4 * STEPS, 0.1), 4), DataLoader(Unlabelled(4 * STEPS, 3), 4)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for first, second in zip(fast, slow, strict=True):
        train_step(model, optimizer, torch.cat([first, second]))
        CLOCK.step()
    return Judge(session).steps().phases("forward").step_time().verdict("data-wait", "read_unlabelled")


@program("findings", "a queue of twenty batches in stock, which is empty from the middle of the run on")
def queue_runs_dry() -> Judge:
    stock: queue.Queue[Tensor | None] = queue.Queue()
    for batch in batches(20):
        stock.put(batch)

    def produce() -> None:
        for batch in batches(80):
            rest(24)
            stock.put(batch)
        stock.put(None)

    def drain() -> Iterator[Tensor]:
        while True:
            with CLOCK.phase("data"):
                batch = stock.get()
            if batch is None:
                return
            yield batch

    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    threading.Thread(target=produce, daemon=True).start()
    for batch in session.loader(drain()):
        train_step(model, optimizer, batch)
        CLOCK.step()
    judge = Judge(session).steps().phases("data", "forward", "backward")
    return judge.verdict("data-wait", HERE, "drain|get", also=("jitter",))


# a module


class Aligner(nn.Module):
    """A layer that is fast for short inputs and slow for long ones."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = weight()

    def forward(self, x: Tensor) -> Tensor:
        return sleep_op(x, self.weight, 40 if len(x) > 24 else 1, 1, "aligner")


@program("findings", "a module that is slow only for long inputs, which one batch of five is, at random")
def slow_for_long_inputs() -> Judge:
    model = Parts(
        lambda net, x: net.tail(net.aligner(net.stem(x))), stem=Sleep(2, 3), aligner=Aligner(), tail=Sleep(1, 2)
    )
    chosen = random.Random(2)
    data = (torch.randn(chosen.choices((8, 16, 32), (2, 2, 1))[0], 16) for _ in range(120))
    judge = fit_with(model, data=data).steps().phases("forward", "backward").row("aligner", "forward")
    either = ("hot-module", "jitter")
    return judge.verdict(either, "aligner", also=(*either, "backward-ratio"))


@program("findings", "one of six equal layers is slow, but only in its backward")
def sibling_with_a_slow_backward() -> Judge:
    layers = nn.ModuleList(Sleep(1, 14 if number == 4 else 1, f"layer{number}") for number in range(6))

    def call(net: Any, x: Tensor) -> Any:
        for layer in net.layers:
            x = layer(x)
        return x

    judge = fit_with(Parts(call, layers=layers)).steps().phases("forward", "backward")
    either = ("hot-module", "backward-ratio")
    return judge.verdict(either, r"layers[./]4|\b4\b", also=either)


@program("findings", "a hook on the gradient of one weight takes 12 ms")
def hook_on_a_gradient() -> Judge:
    model = Parts(lambda net, x: net.tail(net.projection(x)), projection=nn.Linear(16, 16), tail=Sleep(3, 4, "tail"))

    def describe_gradient(gradient: Tensor) -> None:
        rest(12)

    model.projection.weight.register_hook(describe_gradient)  # type: ignore[union-attr, operator]
    judge = fit_with(model).steps().phases("forward", "backward", "other")
    return judge.names("the hook or its module", "describe_gradient|projection", "unattributed", "backward-ratio")


@program("findings", "a module that tries its kernels out in the first 40 of 140 steps")
def slow_in_the_first_steps() -> Judge:
    tuner = Unlike(20, 2, "tuner")
    model = Parts(lambda net, x: net.tuner(net.stem(x)), stem=Sleep(2, 3, "stem"), tuner=tuner)

    def after(number: int, batch: Tensor) -> None:
        if number == 40:
            tuner.forward_ms = 1

    judge = fit_with(model, after, 140).steps().run_time()
    return judge.verdict(("hot-module", "jitter"), "tuner", also=("hot-module", "jitter"))


class Bank(nn.Module):
    """A memory bank that is searched from the beginning in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.entries = weight(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.entries += 1
        return sleep_op(x, self.weight, 1 + 0.2 * self.entries, 1, "bank")


@program("findings", "a search that takes longer in every step: the module is named, and that it gets slower")
def slower_and_slower() -> Judge:
    model = Parts(lambda net, x: net.bank(net.stem(x)), stem=Sleep(3, 4, "stem"), bank=Bank())
    judge = fit_with(model, steps=140).steps().phases("forward", "backward").row("bank", "forward")
    judge.names("the bank", r"\bbank\b", "hot-module", "jitter")
    slower = (
        r"(?:slower|longer)\b[^.;]{0,40}(?:slower|longer|over the run|in each step|at the end|than at|step by step)"
        r"|(?:time|step)s? (?:grows?|rises?|rose|gets? slower)|from [\d.]+ ms[^.;]{0,40}to [\d.]+ ms"
    )
    return judge.says("it gets slower", slower)


class QuantiseGradient(torch.autograd.Function):
    """A function of the loss that takes its time in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        rest(15)
        return gradients[0]


@program("findings", "an autograd.Function of the loss, in no module, takes 15 ms in its backward")
def slow_function_of_the_loss() -> Judge:
    model = two_layers()
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        loss: Tensor = QuantiseGradient.apply(model(batch)).square().mean()  # type: ignore[no-untyped-call]
        update(loss, optimizer)

    judge = judge_loop(model, step, STEPS, optimizer).steps().phases("forward", "backward").step_time()
    return judge.names("the function or its line", f"QuantiseGradient|{HERE}", "unattributed", "backward-ratio")


@program("findings", "a perceptual loss of its own network, which is no part of the model, each fifth step")
def perceptual_loss_each_fifth_step() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    perceptual = nn.Sequential(Sleep(60, 30, "perceptual")).requires_grad_(False)

    def compare_features(output: Tensor) -> Any:
        return perceptual(output).square().mean()

    def step(batch: Tensor) -> None:
        output = model(batch)
        loss = output.square().mean()
        if len(CLOCK.steps) % 5 == 4:
            loss = loss + compare_features(output)
        update(loss, optimizer)

    judge = judge_loop(model, step, 120, optimizer).steps().phases("backward").step_time()
    either = ("unattributed", "hot-module", "jitter")
    return judge.verdict(either, "compare_features|[Pp]erceptual|Loss", also=(*either, "backward-ratio"))


class Looped(nn.Module):
    """Attention that goes through its heads in a Python loop."""

    def __init__(self, heads: int = 32) -> None:
        super().__init__()
        self.heads, self.parts = heads, nn.Linear(128, 384)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x).chunk(3, -1)
        outputs = []
        for head in range(self.heads):
            place = slice(4 * head, 4 * head + 4)
            scores = query[..., place] @ key[..., place].transpose(-1, -2) / 2
            outputs.append(scores.softmax(-1) @ value[..., place])
        return torch.cat(outputs, -1)


@program("defects", "attention in a Python loop over 32 heads")
def loop_over_the_heads() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        return net.out(x + net.attn(net.stem(x)))

    model = Parts(call, stem=nn.Linear(128, 128), attn=Looped(), out=nn.Linear(128, 128))
    judge = fit_with(model, data=[torch.randn(2, 32, 128) for _ in range(150)]).steps()
    judge.phases("forward", "backward").hottest(r"(.*\.)?attn")
    either = ("hot-module", "attention", "unattributed")
    return judge.verdict(either, "attn|Looped", also=(*either, "small-batch"))


class Spectrum(nn.Module):
    """A transform whose basis was made by numpy, in float64."""

    def __init__(self) -> None:
        super().__init__()
        places = np.arange(512)
        self.basis = torch.from_numpy(np.cos(np.outer(places, places) * np.pi / 512))

    def forward(self, x: Tensor) -> Tensor:
        return ((x.double() @ self.basis) @ self.basis.T).float()


@program("defects", "one module computes in float64, because numpy made its constants")
def double_in_one_module() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        return net.head(net.spectrum(net.stem(x)))

    model = Parts(call, stem=nn.Linear(512, 512), spectrum=Spectrum(), head=nn.Linear(512, 8))
    judge = fit_with(model, data=[torch.randn(256, 512) for _ in range(60)]).steps()
    judge.phases("forward", "backward").hottest(r"(.*\.)?spectrum")
    return judge.verdict("precision", "float64|double", also=("hot-module",)).finds("precision", "spectrum")


class Exponential(nn.Module):
    """A parametrization by the matrix exponential: the weight is orthogonal."""

    def forward(self, x: Tensor) -> Tensor:
        lower = x.tril(-1)
        return torch.matrix_exp(lower - lower.T)


@program("defects", "an orthogonal weight by parametrization: its matrix exponential is most of the step")
def orthogonal_parametrization() -> Judge:
    turn = nn.Linear(192, 192, bias=False)
    parametrize.register_parametrization(turn, "weight", Exponential())

    def call(net: Any, x: Tensor) -> Any:
        return net.head(net.turn(net.stem(x)))

    model = Parts(call, stem=nn.Linear(192, 192), turn=turn, head=nn.Linear(192, 8))
    with torch.no_grad():
        turn.parametrizations.weight.original.mul_(0.1)  # type: ignore[union-attr, operator]
    judge = fit_with(model, data=[torch.randn(64, 192) for _ in range(100)]).steps().phases("forward", "backward")
    judge.hottest(r"(.*\.)?turn(\..*)?")
    return judge.names("the parametrization or its layer", "turn|parametri|Exponential", "hot-module")


@program("findings", "a pretrained trunk is in no optimizer and still builds its graph: its backward is in its row")
def trunk_in_no_optimizer() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        return net.head(net.trunk(x))

    model = Parts(call, trunk=Unlike(5, 11, "trunk"), head=Sleep(1, 2, "head"))
    optimizer = sgd(model.head)  # type: ignore[arg-type]
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), STEPS, optimizer).steps()
    judge.phases("forward", "backward", "optimizer").row("trunk", "forward").row("trunk", "backward").hottest("trunk")
    return judge.closes().silent("data-wait", "unattributed", "optimizer", "excluded")


@program("findings", "the model is called twice on each batch, for the loss and again for the accuracy")
def called_again_for_the_accuracy() -> Judge:
    model = Parts(lambda net, x: net.body(net.stem(x)), stem=Sleep(2, 3, "stem"), body=Unlike(1, 2, "body"))
    optimizer = sgd(model)

    def step(batch: Tensor) -> None:
        loss = model(batch).square().mean()
        right = (model(batch).argmax(1) == 0).float().mean()
        update(loss, optimizer)
        assert 0 <= float(right) <= 1

    judge = judge_loop(model, step, STEPS, optimizer).steps().phases("forward", "backward").step_time()
    judge.throughput(8, may_be_absent=True).excludes_nothing()
    return judge.says("two calls a step", r"×2|twice|2 calls|2 forwards|two forwards|called 2")


class PythonLion(torch.optim.Optimizer):
    """An optimizer that goes through the parameters, and reads a number of each."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {"lr": 1e-6})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move each parameter by a sign that its norm has scaled."""
        with CLOCK.phase("optimizer"):
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = self.state[parameter]
                    mean = state.setdefault("mean", torch.zeros_like(parameter))
                    scale = float(parameter.norm()) / (float(parameter.grad.norm()) + 1e-6)
                    direction = torch.sign(0.9 * mean + 0.1 * parameter.grad)
                    state["mean"] = 0.99 * mean + 0.01 * parameter.grad
                    parameter.copy_(parameter - group["lr"] * min(scale, 1.0) * direction)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients."""
        with CLOCK.phase("optimizer"):
            super().zero_grad(set_to_none)


@program("defects", "an optimizer in Python that goes through 300 small parameters one by one")
def optimizer_written_in_python() -> Judge:
    model = Chain(*(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()) for _ in range(75)))
    optimizer = PythonLion(model.parameters())
    data = (torch.randn(128, 64) for _ in range(70))
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), data, optimizer)
    return judge.steps().phases("forward", "backward", "optimizer").verdict("optimizer")


# memory that grows: one MiB a step


def mebibyte() -> Tensor:
    """Return a tensor of one MiB that is really in memory."""
    return torch.ones(2**18)


def grow_with(after: After, steps: int = 180) -> Judge:
    """Train a model of two layers, with something after each step that keeps memory."""
    return fit_with(Chain(Sleep(2, 4, "stem"), Sleep(2, 3, "body")), after, steps).steps()


class ReplayBuffer:
    """The transitions of all episodes."""

    def __init__(self) -> None:
        self.transitions: list[tuple[Tensor, int]] = []

    def push(self, state: Tensor, action: int) -> None:
        """Keep a transition."""
        self.transitions.append((state, action))


@program("defects", "a replay buffer without a limit keeps a MiB a step: its attribute is named")
def replay_buffer_without_a_limit() -> Judge:
    buffer = ReplayBuffer()
    return grow_with(lambda number, batch: buffer.push(mebibyte(), number)).verdict(
        "memory-growth", "transitions|ReplayBuffer"
    )


@program("defects", "a forward hook keeps activations in a dict by step: the dict is named")
def activations_kept_by_a_hook() -> Judge:
    model = Chain(Sleep(2, 4, "stem"), Sleep(2, 3, "body"))
    activations: dict[tuple[str, int], Tensor] = {}

    def remember(module: nn.Module, inputs: object, output: Tensor) -> None:
        activations["body", len(CLOCK.steps)] = output.detach().repeat(2048, 1)

    model[1].register_forward_hook(remember)
    return fit_with(model, steps=180).steps().verdict("memory-growth", "activations")


@functools.cache
def position_mask(step: int) -> Tensor:
    """Return a mask that is kept for each argument."""
    return torch.full((2**18,), float(step))


@program("defects", "a function with an unlimited lru_cache is called with the number of the step")
def cache_by_step() -> Judge:
    return grow_with(lambda number, batch: position_mask(number)).verdict(
        "memory-growth", "position_mask|lru_cache|cache"
    )


@program("defects", "closures in a list hold the batch for which each of them was made")
def closures_hold_batches() -> Judge:
    callbacks: list[Callable[[], float]] = []

    def after(number: int, batch: Tensor) -> None:
        kept = mebibyte()
        callbacks.append(lambda: float(kept.sum()))

    return grow_with(after).verdict("memory-growth", "callbacks")


@program("defects", "optimizers are made anew and the old ones are kept with their state: the list is named")
def old_optimizers_kept() -> Judge:
    model = Chain(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 16))
    retired: list[torch.optim.Optimizer] = []
    session = autoprof.instrument(model)
    CLOCK.start()
    for _ in range(150):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
        update(model(torch.randn(64, 256)).square().mean(), optimizer)
        rest(8)
        retired.append(optimizer)
        CLOCK.step()
    return Judge(session).steps().finds("memory-growth", "retired")


@program("defects", "a list in a module of the program's own, in another file, keeps all predictions")
def list_in_another_module() -> Judge:
    Path("trainlog.py").write_text("PREDICTIONS = []\n\n\ndef keep(value):\n    PREDICTIONS.append(value)\n", "utf-8")
    sys.path.insert(0, str(Path.cwd()))
    trainlog = importlib.import_module("trainlog")
    return grow_with(lambda number, batch: trainlog.keep(mebibyte())).verdict("memory-growth", "PREDICTIONS|trainlog")


class Remembering(Sleep):
    """A layer that keeps its outputs."""

    def __init__(self) -> None:
        super().__init__(2, 3, "remembering")
        self.history: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        output = super().forward(x)
        self.history.append(output.detach().repeat(2048, 1))
        return output


@program("defects", "a layer appends its outputs to an attribute of its own: module and attribute are named")
def history_of_a_layer() -> Judge:
    model = Chain(Sleep(2, 4, "stem"), Remembering())
    return fit_with(model, steps=180).steps().verdict("memory-growth", "history")


@program("defects", "exceptions in a list hold their frames, and with them the tensors of skipped batches")
def exceptions_hold_frames() -> Judge:
    failures: list[Exception] = []

    def parse_extra(number: int, batch: Tensor) -> None:
        scratch = mebibyte()
        raise ValueError(f"batch {number} has {len(scratch)} values too many")

    def after(number: int, batch: Tensor) -> None:
        try:
            parse_extra(number, batch)
        except ValueError as raised:
            failures.append(raised)

    return grow_with(after).verdict("memory-growth", "failures|scratch")


@program("defects", "numpy arrays of all predictions are kept for a metric at the end")
def numpy_predictions_kept() -> Judge:
    predictions: list[Any] = []
    judge = grow_with(lambda number, batch: predictions.append(np.ones(2**17)))
    return judge.verdict("memory-growth", "predictions")


@program("healthy", "a cache of 60 MiB fills in the first 60 of 200 steps and stays so")
def full_cache_is_healthy() -> Judge:
    cache: dict[int, Tensor] = {}

    def after(number: int, batch: Tensor) -> None:
        if number % 60 not in cache:
            cache[number % 60] = mebibyte()

    return grow_with(after, 200).silent()


@program("healthy", "retain_graph=True in each backward, of graphs that the next step drops")
def graphs_retained_for_a_step_is_healthy() -> Judge:
    model = Chain(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 128))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(batch: Tensor) -> None:
        loss = functional.mse_loss(model(batch), batch)
        with CLOCK.phase("backward"):
            loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    made = [torch.randn(256, 128) for _ in range(4)]
    judge = judge_loop(model, step, (made[number % 4] for number in range(200)), optimizer)
    return judge.steps().phases("forward", "backward").silent("memory-growth", "unattributed", "data-wait", "recompute")


class Curriculum(Root):
    """A model whose time is that of its input's length."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weight() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for one in self.weights:
            x = sleep_op(x, one, len(x) / 8, len(x) / 6)
        return x


@program("healthy", "a curriculum: the inputs get longer, and so do the steps, threefold over the run")
def curriculum_is_healthy() -> Judge:
    data = (torch.randn(8 + number // 8, 16) for number in range(130))
    judge = fit_with(Curriculum(), data=data).steps().phases("forward", "backward").step_time()
    return judge.silent("memory-growth", "unattributed", "data-wait", "optimizer", "jitter")
