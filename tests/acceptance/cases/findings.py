"""Programs with one defect each, which the report must name, and healthy programs, which it must not accuse."""

import gc
import logging
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import (
    Block,
    Chain,
    Parts,
    Root,
    Sleep,
    SlowSamples,
    Unlike,
    batches,
    clocked_steps,
    instrumented,
    judge_loop,
    judge_plain,
    rest,
    sgd,
    train_step,
    update,
    validate,
)
from ..registry import program

STEPS = 80


def net() -> Chain:
    """Return a model of two equal layers."""
    return Chain(Sleep(2, 2, "first"), Sleep(2, 2, "second"))


def save_image(x: Tensor, ms: float) -> None:
    """Take a time in plain code, as a program does that writes a picture."""
    time.sleep(ms / 1e3)


def draw_figure(x: Tensor, ms: float) -> None:
    """Keep the processor busy in plain code."""
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass


def loop(model: Any, steps: int = STEPS, after: Any = None, optimizer: Any = None) -> Judge:
    """Train, with something after each step."""
    optimizer = optimizer or sgd(model)

    def step(batch: Tensor) -> None:
        train_step(model, optimizer, batch)
        if after is not None:
            after(len(CLOCK.steps) + 1, batch)

    return judge_loop(model, step, steps, optimizer)


@program("findings", "a sleeping function of the program takes 60 % of the step: named with its file and line")
def unattributed_sleep() -> Judge:
    judge = loop(net(), after=lambda number, batch: save_image(batch, 14))
    return judge.steps().phases("other").finds("unattributed", r"findings\.py:\d+", "save_image")


@program("findings", "a busy function of the program takes half of the step: named with its file and line")
def unattributed_work() -> Judge:
    judge = loop(net(), after=lambda number, batch: draw_figure(batch, 9))
    return judge.steps().phases("other").finds("unattributed", r"findings\.py:\d+", "draw_figure")


@program("findings", "a function inside the model's forward takes most of the step: it is named, or the forward is")
def slow_code_in_forward() -> Judge:
    def forward(net: Any, x: Tensor) -> Any:
        save_image(x, 12)
        return net.body(x)

    model = Parts(forward, body=Sleep(2, 2))
    judge = loop(model).steps().phases("forward")
    return judge.names("save_image or forward", "save_image|forward", "hot-module", "unattributed")


@program("defects", "validation after every second step takes half of the time")
def validating_too_often() -> Judge:
    model = net()

    def after(number: int, batch: Tensor) -> None:
        if number % 2 == 0:
            validate(model)

    return loop(model, after=after).steps().verdict("excluded", "validation")


def train_on_rollouts(*, evaluates: bool) -> Judge:
    """Alternate a rollout of 20 forwards without gradients and four epochs of four updates on it."""
    model = net()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for _ in range(10):
        states = []
        model.train(not evaluates)
        with CLOCK.phase(EXCLUDED), torch.no_grad():
            for state in batches(20):
                states.append(state + 0.0 * model(state))
                save_image(state, 4)
        model.train()
        for batch in torch.cat(states).repeat(4, 1).chunk(16):
            train_step(model, optimizer, batch)
            CLOCK.step()
    return Judge(session).steps()


@program("defects", "reinforcement learning: rollouts in eval mode take most of the time and are part of the work")
def rollouts_in_eval_mode() -> Judge:
    return train_on_rollouts(evaluates=True).verdict("excluded", "rollout", "part of the work")


@program("defects", "reinforcement learning: the same rollouts in train mode belong to the step that follows")
def rollouts_in_train_mode() -> Judge:
    return train_on_rollouts(evaluates=False).verdict(
        "forward-only", "long steps: every 16th step", "forward", also=("jitter",)
    )


@program("defects", "the model is saved after every step")
def saving_every_step() -> Judge:
    ballast = torch.randn(3_000_000)

    def save(number: int, batch: Tensor) -> None:
        with CLOCK.phase(EXCLUDED):
            torch.save(ballast, Path("checkpoint.pt"))

    return loop(net(), 60, after=save).steps().verdict("excluded", "sav")


@program("defects", "torch.autograd.set_detect_anomaly(True) left on")
def anomaly_detection() -> Judge:
    torch.autograd.set_detect_anomaly(True)
    judge = loop(net()).steps().verdict("debug-mode", "anomaly")
    torch.autograd.set_detect_anomaly(False)
    return judge


@program("findings", "detect_anomaly as a block around each backward")
def anomaly_detection_in_a_block() -> Judge:
    model = net()
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        with torch.autograd.detect_anomaly(check_nan=True):
            train_step(model, optimizer, batch)
    return Judge(session).steps().finds("debug-mode", "anomaly")


@program("defects", "gc.collect() after every step, with tens of thousands of objects")
def collecting_by_hand() -> Judge:
    gc.freeze()  # torch's own objects would make each collection 0.1 s long
    heap = [{"number": number, "list": [number]} for number in range(60_000)]
    judge = loop(net(), after=lambda number, batch: gc.collect())
    assert heap
    return judge.steps().verdict("unattributed", "gc.collect")


class SmallDataset(Dataset[Tensor]):
    """A dataset of a few samples."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(16)


@program("defects", "two workers started anew in each epoch of eight batches")
def workers_restarted() -> Judge:
    model = net()
    loader = DataLoader(SmallDataset(), batch_size=8, num_workers=2)
    session, optimizer = instrumented(model)
    CLOCK.start()
    for _ in range(10):
        for batch in loader:
            train_step(model, optimizer, batch)
            CLOCK.step()
    return Judge(session).steps().verdict(("data-wait", "jitter"), "persistent_workers")


@program("findings", "a dataset whose samples take a millisecond each, without workers")
def slow_dataset() -> Judge:
    model = net()
    return judge_plain(model, SlowSamples(8 * STEPS, 1).loader()).steps().phases("data").finds("data-wait")


@program("defects", "batches of one sample through eighty tiny layers: the overhead of Python rules")
def tiny_batches() -> Judge:
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(80)))
    model = Parts(lambda net, x: net.layers(x), layers=layers)
    return judge_plain(model, batches(200, 1, 8)).steps().verdict("small-batch", "batch")


@program("defects", "sixteen threads for each core, in a model of real arithmetic")
def too_many_threads() -> Judge:
    torch.set_num_threads(16 * (os.cpu_count() or 1))
    model = Chain(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)))
    return judge_plain(model, batches(100, 128, 256)).steps().says("torch.set_num_threads", "OMP_NUM_THREADS")


@program("findings", "an optimizer that takes a third of the step")
def slow_optimizer() -> Judge:
    model = net()
    return loop(model, optimizer=sgd(model, 5)).steps().phases("optimizer").finds("optimizer")


@program("defects", "checkpointing that takes a quarter of the step")
def recompute_found() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        return checkpoint(lambda y: net.body(y), net.stem(x), use_reentrant=False)

    return loop(Parts(call, stem=Sleep(1, 1), body=Sleep(5, 5))).steps().verdict("recompute")


@program("findings", "one layer ten times as long as any other, in plain sight")
def hot_layer() -> Judge:
    model = Chain(Sleep(0.5, 0.5), Unlike(8, 8, "hot"), Sleep(0.7, 0.7), Sleep(0.6, 0.6))
    return loop(model).steps().finds("hot-module", r"\b1\b")


@program("defects", "every seventh step waits a long time in plain code")
def irregular_steps() -> Judge:
    judge = loop(net(), 120, after=lambda number, batch: save_image(batch, 0 if number % 7 else 60))
    return judge.steps().verdict(("jitter", "unattributed"), also=("jitter", "unattributed"))


@program("defects", "hundreds of log lines to a slow handler in every step")
def logging_every_step() -> Judge:
    class Slow(logging.Handler):
        """A handler as of a network service."""

        def emit(self, record: logging.LogRecord) -> None:
            rest(0.5)

    logger = logging.getLogger("train")
    logger.propagate = False
    logger.addHandler(Slow())
    logger.setLevel(logging.INFO)

    def report(number: int, batch: Tensor) -> None:
        for index in range(10):
            logger.info("layer %d is fine", index)

    return loop(net(), after=report).steps().verdict("logging", r"findings\.py:\d+")


# healthy programs: no finding accuses them


class Gpt(Root):
    """A small GPT with its parts in a ModuleDict, as nanoGPT has it."""

    def __init__(self) -> None:
        super().__init__()
        layer = partial(nn.TransformerEncoderLayer, 64, 4, 256, dropout=0.0, activation="gelu", norm_first=True)
        blocks = nn.ModuleList(layer(batch_first=True) for _ in range(4))
        self.mask = nn.Transformer.generate_square_subsequent_mask(64)
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(500, 64), "h": blocks, "ln_f": nn.LayerNorm(64)})
        self.lm_head = nn.Linear(64, 500, bias=False)

    def forward(self, x: Tensor) -> Any:
        x = self.transformer["wte"](x)
        for block in self.transformer["h"]:  # type: ignore[attr-defined]
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.lm_head(self.transformer["ln_f"](x))


def mobilenet() -> Parts:
    """Return depthwise and pointwise convolutions in a row."""

    def inverted(width: int) -> nn.Module:
        wide = 4 * width
        return nn.Sequential(
            *(nn.Conv2d(width, wide, 1), nn.BatchNorm2d(wide), nn.ReLU6()),
            *(nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.ReLU6(), nn.Conv2d(wide, width, 1)),
        )

    features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), *(inverted(8) for _ in range(5)))
    return Parts(
        lambda net, x: net.classifier(net.features(x).mean((2, 3))), features=features, classifier=nn.Linear(8, 10)
    )


def u_net() -> Parts:
    """Return two levels down and up, with a bridge between."""

    def call(net: Any, x: Tensor) -> Tensor:
        first = functional.relu(net.down1(x))
        x = functional.relu(net.down2(first))
        x = functional.relu(x + net.bn2(net.conv2(functional.relu(net.bn1(net.conv1(x))))))
        output: Tensor = net.out(torch.cat([first, net.up(x)], 1))
        return output

    middle = {f"conv{number}": nn.Conv2d(32, 32, 3, padding=1) for number in (1, 2)}
    norms = {f"bn{number}": nn.BatchNorm2d(32) for number in (1, 2)}
    ends = {"up": nn.ConvTranspose2d(32, 16, 2, 2), "out": nn.Conv2d(32, 3, 3, padding=1)}
    return Parts(
        call, down1=nn.Conv2d(3, 16, 3, padding=1), down2=nn.Conv2d(16, 32, 3, 2, 1), **middle, **norms, **ends
    )


def healthy(model: Any, make: Any, steps: int = STEPS) -> Judge:
    """Train a model of real arithmetic with AdamW on random inputs; nothing may be accused."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    judge = judge_loop(
        model, lambda number: update(model(make()).float().square().mean(), optimizer), range(steps), optimizer
    )
    return judge.steps().silent()


@program("healthy", "a GPT with its blocks in a ModuleList inside a ModuleDict")
def healthy_gpt() -> Judge:
    return healthy(Gpt(), lambda: torch.randint(0, 500, (8, 64)))


@program("healthy", "a MobileNet-like network")
def healthy_mobilenet() -> Judge:
    return healthy(mobilenet(), lambda: torch.randn(8, 3, 64, 64))


@program("healthy", "a U-Net")
def healthy_unet() -> Judge:
    return healthy(u_net(), lambda: torch.randn(8, 3, 32, 32))


@program("healthy", "an LSTM for sequences")
def healthy_lstm() -> Judge:
    parts = {"embed": nn.Embedding(500, 64), "lstm": nn.LSTM(64, 64, 2, batch_first=True), "head": nn.Linear(64, 20)}
    model = Parts(lambda net, x: net.head(net.lstm(net.embed(x))[0]), **parts)
    return healthy(model, lambda: torch.randint(0, 500, (16, 48)))


@program("healthy", "two equal layers that sleep")
def healthy_sleepers() -> Judge:
    return loop(net()).steps().silent()


@program("healthy", "a list of equal blocks, whose sum is most of the step")
def healthy_blocks() -> Judge:
    blocks = nn.Sequential(*(Block((1, 1), (1, 1)) for _ in range(4)))
    model = Parts(
        lambda net, x: net.head(net.blocks(net.stem(x))), stem=Sleep(0.3, 0.3), head=Sleep(0.3, 0.3), blocks=blocks
    )
    return loop(model, 120).steps().silent()


@program("healthy", "gradient accumulation, validation and saving now and then, logging each tenth step")
def healthy_everything() -> Judge:
    model = net()
    session, optimizer = instrumented(model)
    CLOCK.start()
    for number, batch in enumerate(batches(240), 1):
        loss = model(batch).mean() / 2
        update(loss)
        if number % 2:
            continue
        optimizer.step()
        optimizer.zero_grad()
        if number % 20 == 0:
            print(f"step {number} loss {loss:.3f}")
        if number % 120 == 0:
            validate(model)
            with CLOCK.phase(EXCLUDED):
                torch.save(model.state_dict(), "checkpoint.pt")
        CLOCK.step()
    return Judge(session).steps().silent()
