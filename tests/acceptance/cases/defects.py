"""Programs with one defect each, of real arithmetic: things that people do, and that cost 15 % of the time or more."""

import copy
import gc
import itertools
import json
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler

import autoprof

from ..judge import Judge
from ..parts import update
from ..registry import program

STEPS = 60
HERE = r"defects\.py:\d+"

Batch = tuple[Tensor, Tensor]
After = Callable[[int, Tensor], object]


class Classifier(nn.Module):
    """Three convolutions and a linear layer: some 20 ms a step on one processor."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 48, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(48, 64, 3, 2, 1),
            nn.ReLU(),
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x).mean((2, 3)))


class Perceptron(nn.Module):
    """A model of many parameters and little arithmetic: some 5 ms a step."""

    def __init__(self, depth: int = 6) -> None:
        super().__init__()
        widths = [(64, 256), *[(256, 256)] * depth, (256, 10)]
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(*width), nn.ReLU()) for width in widths))

    def forward(self, x: Tensor) -> Any:
        return self.layers(x)


class Words(nn.Module):
    """An embedding and a recurrent layer over words."""

    def __init__(self, words: int = 1000) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(words, 64), nn.GRU(64, 64, batch_first=True), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.rnn(self.embed(x))[0].mean(1))


def pictures(count: int = STEPS, size: int = 32) -> Iterator[Batch]:
    """Make batches of random pictures and labels."""
    made = [(torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,))) for _ in range(4)]
    yield from itertools.islice(itertools.cycle(made), count)


def vectors(count: int = STEPS, size: int = 128) -> Iterator[Batch]:
    """Make batches of random vectors and labels."""
    made = [(torch.randn(size, 64), torch.randint(0, 10, (size,))) for _ in range(4)]
    yield from itertools.islice(itertools.cycle(made), count)


def fit(
    model: nn.Module,
    data: Iterable[Batch],
    after: After | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    epochs: int = 1,
) -> Judge:
    """Train as the tutorials do, with something after each step; the verdict is judged."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(epochs):
        for number, (x, y) in enumerate(data):
            value = loss(model(x), y)
            update(value, optimizer)
            if after is not None:
                after(number, value)
    return Judge(session)


# the wait for data


class Pictures(Dataset[Batch]):
    """Pictures that a method prepares."""

    def __len__(self) -> int:
        return 32 * STEPS

    def __getitem__(self, index: int) -> Batch:
        return self.augment(np.full((3, 32, 32), index % 255, np.uint8)), torch.tensor(index % 10)

    def augment(self, picture: Any) -> Tensor:
        """Jitter the colours pixel by pixel, in Python."""
        rows = [[min(255, int(value) * 3 // 2) for value in row] for plane in picture for row in plane]
        return torch.tensor(rows, dtype=torch.float32).reshape(3, 32, 32)


@program("defects", "an augmentation that goes through the pixels in Python, without workers")
def python_augmentation() -> Judge:
    return fit(Classifier(), DataLoader(Pictures(), batch_size=16)).verdict("data-wait", "augment")


class Sentences(Dataset[list[int]]):
    """Lists of token ids of different lengths."""

    def __len__(self) -> int:
        return 48 * 100

    def __getitem__(self, index: int) -> list[int]:
        return [1 + (index * place) % 900 for place in range(80 + index % 60)]


def pad(sentences: list[list[int]]) -> Batch:
    """Pad sentences element by element, as a collate function that somebody wrote in a hurry."""
    longest = max(map(len, sentences))
    tokens = torch.zeros(len(sentences), longest, dtype=torch.long)
    for row, sentence in enumerate(sentences):
        for column, word in enumerate(sentence):
            tokens[row, column] = word
    return tokens, torch.zeros(len(sentences), dtype=torch.long)


@program("defects", "a collate function that fills the padded batch element by element")
def padding_in_collate() -> Judge:
    loader: Any = DataLoader(Sentences(), batch_size=48, collate_fn=pad)
    return fit(Words(), loader).verdict("data-wait", "pad")


class Files(Dataset[Batch]):
    """Samples in a compressed file each."""

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = [folder / f"{number}.json.z" for number in range(count)]
        for path in self.paths:
            path.write_bytes(zlib.compress(json.dumps(np.random.rand(3, 32, 32).tolist()).encode()))

    def __len__(self) -> int:
        return 24 * len(self.paths)

    def __getitem__(self, index: int) -> Batch:
        picture = self.read(self.paths[index % len(self.paths)])
        return picture, torch.tensor(index % 10)

    def read(self, path: Path) -> Tensor:
        """Open, decompress and parse."""
        return torch.tensor(json.loads(zlib.decompress(path.read_bytes())))


@program("defects", "every sample is read again from a compressed JSON file of its own")
def file_per_sample() -> Judge:
    return fit(Classifier(), DataLoader(Files(Path(), 40), batch_size=16)).verdict("data-wait", "read")


@program("defects", "one worker for a data set that needs three")
def too_few_workers() -> Judge:
    loader = DataLoader(Pictures(), batch_size=16, num_workers=1)
    return fit(Perceptron(2), ((x.flatten(1)[:, :64], y) for x, y in loader)).verdict("data-wait", "worker")


class ByLength(Sampler[list[int]]):
    """Batches of samples of similar length, sorted again for every batch."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(STEPS):
            order = sorted(range(len(self.lengths)), key=lambda index: (self.lengths[index], index % 7))
            yield order[16 * number : 16 * number + 16]


@program("defects", "a sampler that sorts the whole data set for every batch")
def sorting_sampler() -> Judge:
    torch_data = torch.utils.data.TensorDataset(torch.randn(60_000, 64), torch.randint(0, 10, (60_000,)))
    loader = DataLoader(torch_data, batch_sampler=ByLength([17 * index % 91 for index in range(60_000)]))
    return fit(Perceptron(), loader).verdict("data-wait", HERE)


# code of the loop


def tokenize(texts: list[str], vocabulary: dict[str, int]) -> Tensor:
    """Split texts into words and look each of them up."""
    rows = []
    for text in texts:
        cleaned = "".join(letter.lower() if letter.isalpha() else " " for letter in text)
        rows.append([vocabulary.setdefault(word, len(vocabulary) % 1000) for word in cleaned.split()][:64])
    return torch.tensor(rows)


@program("defects", "texts are tokenized in the loop, before every step")
def tokenizing_in_the_loop() -> Judge:
    texts, vocabulary = ["The quick brown fox, said I, jumps over lazy dogs. " * 60] * 64, dict[str, int]()
    model = Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(STEPS):
        tokens = tokenize(texts, vocabulary)
        update(functional.cross_entropy(model(tokens), tokens[:, 0] % 4), optimizer)
    return Judge(session).verdict("unattributed", HERE, "tokenize")


@program("defects", "the best model so far is kept by copy.deepcopy after every step")
def copying_the_model() -> Judge:
    model, best = Perceptron(80), list[nn.Module]()

    def keep(number: int, value: Tensor) -> None:
        best[:] = [copy.deepcopy(model)]

    return fit(model, vectors(size=32), keep).verdict("unattributed", HERE, "keep|deepcopy", also=("jitter",))


@program("defects", "an exponential average of the weights, parameter by parameter through state_dict()")
def average_in_python() -> Judge:
    model = Perceptron(80)
    average = {name: value.clone() for name, value in model.state_dict().items()}

    def update_average(number: int, value: Tensor) -> None:
        for name, weight in model.state_dict().items():
            average[name] = 0.999 * average[name] + 0.001 * weight.double().float()

    return fit(model, vectors(100, 32), update_average).verdict("unattributed", HERE, "update_average")


@program("defects", "gradient norms read one by one with .item() before every update")
def clipping_by_hand() -> Judge:
    model = Perceptron(80)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def clip() -> None:
        total = 0.0
        for parameter in model.parameters():
            total += (parameter.grad.double() ** 2).sum().item()  # type: ignore[union-attr]
        for parameter in model.parameters():
            parameter.grad = parameter.grad * min(1.0, 1.0 / (total**0.5 + 1e-6))

    session = autoprof.instrument(model, optimizer=optimizer)
    for x, y in vectors(size=32):
        functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        clip()
        optimizer.step()
        optimizer.zero_grad()
    return Judge(session).verdict("unattributed", HERE, "clip")


def area_under_curve(scores: list[float], labels: list[int]) -> float:
    """Count the pairs in the right order."""
    right = [score for score, label in zip(scores, labels, strict=True) if label]
    wrong = [score for score, label in zip(scores, labels, strict=True) if not label]
    return sum(a > b for a in right for b in wrong) / max(len(right) * len(wrong), 1)


@program("defects", "a metric of all pairs in Python after every step")
def metric_in_python() -> Judge:
    scores = torch.rand(1600).tolist()
    labels = [index % 2 for index in range(1600)]
    judge = fit(Classifier(), pictures(), lambda number, value: area_under_curve(scores, labels))
    return judge.verdict("unattributed", HERE, "area_under_curve|genexpr")


def contrastive(scores: Tensor, labels: Tensor) -> Tensor:
    """Add up a loss over all pairs, one pair at a time."""
    losses = []
    for i in range(len(scores)):
        for j in range(i):
            distance = (scores[i] - scores[j]).square().sum()
            losses.append(distance if labels[i] == labels[j] else torch.relu(1 - distance))
    return torch.stack(losses).mean()


@program("defects", "a loss that goes through all pairs of the batch in Python")
def loss_in_python() -> Judge:
    return fit(Classifier(), pictures(60), loss=contrastive).verdict("unattributed", HERE, "contrastive|loss")


@program("defects", "torch.tensor() of a list of arrays, in every step")
def tensor_of_a_list() -> Judge:
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    arrays = [np.random.rand(3, 32, 32).astype(np.float32).tolist() for _ in range(64)]
    session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(100):
        x, y = torch.tensor(arrays), torch.randint(0, 10, (64,))
        update(functional.cross_entropy(model(x), y), optimizer)
    return Judge(session).verdict("unattributed", HERE)


@program("defects", "a program is started in every step, as to read a temperature")
def process_in_each_step() -> Judge:
    import subprocess

    def read_temperature(number: int, value: Tensor) -> None:
        subprocess.run(
            ["/bin/sh", "-c", "for n in 1 2 3 4; do sort /proc/meminfo | head -1; done"],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    return fit(Classifier(), pictures(), read_temperature).verdict("unattributed", HERE, "read_temperature")


@program("defects", "gc.get_objects() in every step, to count the tensors alive")
def counting_tensors() -> Judge:
    def count(number: int, value: Tensor) -> int:
        return sum(isinstance(thing, Tensor) for thing in gc.get_objects())

    return fit(Classifier(), pictures(), count).verdict("unattributed", HERE, "count")


@program("defects", "all weights are printed after every step")
def printing_weights() -> Judge:
    model = Classifier()
    torch.set_printoptions(profile="full")  # type: ignore[no-untyped-call]

    def show(number: int, value: Tensor) -> None:
        print(f"step {number} loss {value:.3f}", model.body[0].weight)

    judge = fit(model, pictures(40), show)
    return judge.verdict(("unattributed", "logging"), HERE, "show|print")


@program("defects", "the accuracy on the whole training set and the test set after every epoch of ten batches")
def accuracy_each_epoch() -> Judge:
    model, data, test = Classifier(), list(pictures(10)), list(pictures(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(8):
        for x, y in data:
            update(functional.cross_entropy(model(x), y), optimizer)
        model.eval()
        with torch.no_grad():
            right = sum(int((model(x).argmax(1) == y).sum()) for x, y in data + test)
        model.train()
        print("accuracy", right)
    return Judge(session).verdict("excluded", "validation")


# the model and its backward


@program("defects", "the model is called for each sample of the batch in a Python loop")
def loop_over_the_batch() -> Judge:
    model = Perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session = autoprof.instrument(model, optimizer=optimizer)
    for x, y in vectors(size=32):
        loss = sum(functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]) for i in range(len(x)))
        update(loss, optimizer)
    return Judge(session).verdict("small-batch", "batch")


class Unrolled(nn.Module):
    """An LSTM written as a loop over time, as in many a repository."""

    def __init__(self) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(16, 4 * 32), nn.Linear(32, 4 * 32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Any:
        hidden = memory = x.new_zeros(len(x), 32)
        for moment in x.unflatten(1, (64, -1)).unbind(1):  # type: ignore[no-untyped-call]
            gates = self.of_input(moment) + self.of_state(hidden)
            take, forget, out, new = gates.chunk(4, 1)
            memory = forget.sigmoid() * memory + take.sigmoid() * new.tanh()
            hidden = out.sigmoid() * memory.tanh()
        return self.head(hidden)


@program("defects", "a recurrent layer as a Python loop over time, with small matrices")
def recurrence_in_python() -> Judge:
    data = ((torch.randn(4, 1024), torch.randint(0, 10, (4,))) for _ in range(STEPS))
    return fit(Unrolled(), data).verdict(("small-batch", "hot-module"), "small|Unrolled")


class _Sorting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        rows = [[0.0 if abs(value) > 1 else 1.0 for value in row] for row in x.tolist()]
        return gradients[0] * torch.tensor(rows)


class Clamp(nn.Module):
    """An activation with a backward pass of its own, written in Python."""

    def forward(self, x: Tensor) -> Any:
        return _Sorting.apply(x)  # type: ignore[no-untyped-call]


@program("defects", "an activation whose backward goes through the elements in Python")
def backward_in_python() -> Judge:
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), Clamp(), nn.Linear(512, 10))
    return fit(model, vectors()).verdict(("backward-ratio", "hot-module"), r"\b3\b")


class Token(nn.Module):
    """A block that normalizes all tokens at once, or each alone."""

    def __init__(self, at_once: bool) -> None:
        super().__init__()
        self.at_once, self.mix, self.norm = at_once, nn.Linear(48, 48), nn.LayerNorm(48)

    def forward(self, x: Tensor) -> Any:
        if self.at_once:
            return self.norm(self.mix(x)) + x
        return torch.stack([functional.layer_norm(self.mix(one), (48,)) for one in x.unbind(1)], 1) + x


@program("defects", "one of six equal blocks goes through the tokens one by one")
def slow_sibling() -> Judge:
    class Model(nn.Module):
        """Six blocks of the same structure and a head."""

        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Token(number != 2) for number in range(6))
            self.head = nn.Linear(48, 10)

        def forward(self, x: Tensor) -> Any:
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean(1))

    data = ((torch.randn(16, 160, 48), torch.randint(0, 10, (16,))) for _ in range(STEPS))
    return fit(Model(), data).verdict("hot-module", r"blocks[./]2")


class Masked(nn.Module):
    """Attention that builds its mask anew, element by element, in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.parts, self.out = nn.Embedding(200, 64), nn.Linear(64, 192), nn.Linear(64, 64)
        self.head = nn.Linear(64, 10)

    def make_mask(self, length: int) -> Tensor:
        """Build a causal mask in two loops."""
        mask = torch.zeros(length, length)
        for i in range(length):
            for j in range(i + 1, length):
                mask[i, j] = float("-inf")
        return mask

    def forward(self, x: Tensor) -> Any:
        x = self.embed(x)
        query, key, value = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.parts(x).chunk(3, -1))
        mask = self.make_mask(x.shape[1])
        mixed = functional.scaled_dot_product_attention(query, key, value, mask)
        return self.head((x + self.out(mixed.transpose(1, 2).flatten(2))).mean(1))


@program("defects", "a causal mask built element by element in every forward")
def mask_in_python() -> Judge:
    data = ((torch.randint(0, 200, (8, 96)), torch.randint(0, 10, (8,))) for _ in range(STEPS))
    return fit(Masked(), data).verdict(("unattributed", "hot-module"), "make_mask")


@program("defects", "a forward hook of the user's sorts the features for statistics, in every step")
def hooks_of_the_user() -> Judge:
    model, statistics = Classifier(), dict[str, list[float]]()

    def watch(module: nn.Module, inputs: object, output: Tensor) -> None:
        for name, values in (("value", output.detach()), ("size", output.detach().abs())):
            statistics[name] = sorted(values.flatten().tolist())[::100]

    model.body.register_forward_hook(watch)
    return fit(model, pictures()).verdict(("unattributed", "hot-module"), "watch")


@program("defects", "a model and its data in float64, as numpy delivers it")
def double_precision() -> Judge:
    model = Classifier().double()
    return fit(model, ((x.double(), y) for x, y in pictures())).verdict("precision", "float64|double")


# the optimizer


@program("defects", "Adam updates all rows of an embedding of which a batch uses a few")
def dense_embedding() -> Judge:
    model = nn.Sequential(nn.EmbeddingBag(200_000, 24), nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters())
    session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(40):
        words, labels = torch.randint(0, 200_000, (64, 32)), torch.randint(0, 4, (64,))
        update(functional.cross_entropy(model(words), labels), optimizer)
    return Judge(session).verdict("optimizer", also=("backward-ratio", "hot-module"))


@program("defects", "an optimizer of its own for every one of 240 parameters, each stepped in a loop")
def optimizer_per_parameter() -> Judge:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(120)))
    optimizers = [torch.optim.AdamW([one]) for one in model.parameters()]
    session = autoprof.instrument(model)
    for x, _ in vectors(size=256):
        model(x).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return Judge(session).verdict("optimizer")


# the process


@program("defects", "torch.profiler left on for the whole training")
def profiler_left_on() -> Judge:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True):
        judge = fit(Perceptron(30), vectors(40))
    return judge.verdict("debug-mode", "profiler", also=("memory-growth",))


@program("defects", "a trace function left on, as of a debugger or a coverage tool")
def trace_left_on() -> Judge:
    def trace(frame: Any, event: str, argument: Any) -> Any:
        return trace

    sys.settrace(trace)
    try:
        judge = fit(Perceptron(60), vectors(40))
    finally:
        sys.settrace(None)
    return judge.verdict("debug-mode", "settrace|debugger|trac")


@program("defects", "a list that keeps every batch and its output for a look later")
def list_of_batches() -> Judge:
    kept: list[tuple[Tensor, Tensor]] = []

    def batches() -> Iterator[Batch]:
        # The first 60 MiB lie in memory that the process has freed before: no reading of it rises.
        for x, y in pictures(140, 96):
            kept.append((x.clone(), y))
            yield x, y

    return fit(Classifier(), batches()).verdict("memory-growth")


@program("defects", "torch.compile with a shape that changes in every step")
def new_shape_each_step() -> Judge:
    torch._dynamo.config.cache_size_limit = 64
    compiled: Any = torch.compile(Perceptron(0), backend="eager", dynamic=False)
    data = ((torch.randn(size, 64), torch.zeros(size).long()) for size in range(16, 32))
    return fit(compiled, data).verdict("recompile")


@program("defects", "a thread of the program that computes in Python and holds the interpreter")
def interpreter_held() -> Judge:
    ended = threading.Event()

    def prefetch() -> None:
        while not ended.is_set():
            sum(index * index for index in range(20_000))

    thread = threading.Thread(target=prefetch, daemon=True)
    thread.start()
    judge = fit(Perceptron(30), vectors(30))
    ended.set()
    thread.join()
    return judge.says("the thread may hold the interpreter", r"holds the interpreter \(GIL\)")
