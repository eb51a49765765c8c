"""Defects of the model's own work: its layers, their arithmetic, their launches, their optimizer."""
# mypy: allow-untyped-calls

from collections import OrderedDict
from dataclasses import replace
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, scaled_dot_product_attention

from autoprof.base.frame import Phase
from autoprof.base.summary import Summary, Work, WorkKind
from autoprof.devices import Tf32Flags, find_peak
from autoprof.devices._cuda_peaks import PEAKS
from autoprof.diagnose import Environment, StackTable
from autoprof.diagnose._calls import CallSite
from autoprof.probes.metrics.flops import Kind, count_call, describe
from autoprof.probes.metrics.utilization import peak_seconds
from autoprof.testing import FakeClock, FakeDevice, open_session

from .training import (
    CONFIG,
    COUNTED_STEP_NS,
    MS,
    STEPS,
    WIDTH,
    Layer,
    SlowSGD,
    diagnose_again,
    four_layers,
    train,
    train_counted,
)


def train_with_slow_backward(broken: bool) -> Summary:
    """Give one layer a backward 15 times as long as its forward; the healthy twin has the usual 2."""
    clock = FakeClock()
    model = four_layers(clock)
    model[2] = Layer(clock, backward_ms=900 if broken else 120)
    return train(model, clock)


def train_with_unused_gradients(broken: bool) -> Summary:
    """Update the last of four layers alone; in the healthy twin the others get no gradients."""
    clock = FakeClock()
    body = nn.Sequential(*(Layer(clock, forward_ms=20, backward_ms=60) for _ in range(3)))
    model = nn.Sequential(OrderedDict(body=body.requires_grad_(broken), head=Layer(clock)))
    config = {**CONFIG, "targets": [{"match": r"body\.\d|head"}], "flops": "off"}
    return train(model, clock, optimizer=SlowSGD(model.head, clock, MS), config=config)


def train_with_carried_state(broken: bool) -> Summary:
    """Pass the output of a step to the next one with its graph, for four steps; the healthy twin detaches it."""
    clock = FakeClock()
    model = four_layers(clock)
    optimizer, state = SlowSGD(model, clock, MS), torch.zeros(4, WIDTH)
    with open_session(model, CONFIG, clock=clock, optimizer=optimizer) as session:
        for number in range(STEPS):
            output = model(torch.randn(4, WIDTH) + (state if number % 4 else 0))
            output.pow(2).mean().backward(retain_graph=broken)
            state = output if broken else output.detach()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            session.step()
    return session.summary()


def train_with_metric_forwards(broken: bool) -> Summary:
    """Call the model a second time in each step, for a metric; the healthy twin computes it from the outputs."""
    clock = FakeClock()
    model = nn.Sequential(OrderedDict(body=four_layers(clock)))

    def measure() -> None:
        if broken:
            model(torch.randn(4, WIDTH)).mean().item()

    config = {**CONFIG, "targets": [{"match": "body"}], "flops": "off"}
    return train(model, clock, before_update=measure, config=config)


def train_with_repeated_calls(broken: bool) -> Summary:
    """Compute the same features twice in each step; the healthy twin uses the first ones again."""
    clock = FakeClock()

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = four_layers(clock)

        def forward(self, x: Tensor) -> Tensor:
            features: Tensor = self.body(x)
            again: Tensor = self.body(x) if broken else features
            return features + again

    return train(Pair(), clock, config={**CONFIG, "targets": [{"match": "body"}], "flops": "off"})


def train_with_hot_layer(broken: bool) -> Summary:
    """Make one of four layers ten times as long as the others; the healthy twin has equal layers."""
    clock = FakeClock()
    model = four_layers(clock)
    model[1] = Layer(clock, forward_ms=600 if broken else 60)
    return train(model, clock)


class Lookup(nn.Module):
    """Rows of a table, by a product with one-hot rows or by their numbers."""

    def __init__(self, by_product: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(50, WIDTH))
        self.by_product = by_product

    def forward(self, numbers: Tensor) -> Tensor:
        if self.by_product:
            return one_hot(numbers, 50).float() @ self.table
        return self.table[numbers]


def train_with_one_hot_rows(broken: bool) -> Summary:
    """Multiply one-hot rows with a table, as the count of the work sees it; the healthy twin indexes the table."""
    clock = FakeClock()
    layers, model = four_layers(clock), Lookup(broken)
    layers[0] = Layer(clock, forward_ms=200, backward_ms=200)
    count = count_call(model, describe(model, (torch.zeros(4, dtype=torch.long),)))
    work = Work(one_hot=tuple(("0", *line) for _, *line in count.one_hot))
    lines = tuple(CallSite(file, line, "forward", "", "", 90, 90 * MS) for file, line in count.lines)
    return diagnose_again(train(layers, clock), work=work, stacks={"forward 0": StackTable(90, 90 * MS, lines, lines)})


def train_with_looping_optimizer(broken: bool) -> Summary:
    """Take 60 ms to update each parameter; the healthy twin takes 0.5 ms."""
    clock = FakeClock()
    return train(four_layers(clock), clock, each_ms=60 if broken else 0.5)


def train_with_tiny_modules(broken: bool) -> Summary:
    """Judge a training as with 72,000 modules, which take 10 µs each for one sample; in the healthy twin for 64.

    The larger batch takes ten times as long, so a module takes 100 µs and a sample a sixth.
    """
    clock = FakeClock()
    return diagnose_again(
        train(four_layers(clock, forward_ms=60 if broken else 600), clock, samples=1 if broken else 64),
        metrics={"host_cpu_cores": 1.0, "host_cpu_busy": 0.5, "host_cpu_waiting": 0.0},
        environment=Environment("cpu", machine_cores=2),
        leaf_modules=72_000,
    )


def train_with_slow_launches(broken: bool) -> Summary:
    """Launch kernels of 0.5 ms in 20 ms each; the healthy twin has a batch 120 times as large, so they take 60 ms."""
    clock = FakeClock()
    device = FakeDevice(clock)
    model = four_layers(clock, device=device, forward_ms=0.5 if broken else 60, launch_ns=20 * MS)
    return train(model, clock, device=device, each_ms=0.01, wait_ms=0.1, samples=1 if broken else 120)


def train_in_float64(broken: bool) -> Summary:
    """Judge a training as with a teraflop a step in 64 bits; in the healthy twin it is in 32."""
    clock, flops = FakeClock(), 10**12
    summary = train(four_layers(clock), clock)
    kind = WorkKind("float64" if broken else "float32", "matmul", flops)
    rate = flops * 1e9 / summary.step_mean_ns
    return diagnose_again(summary, work=Work(flops={Phase.FORWARD.value: flops}, flops_per_s=rate, kinds=(kind,)))


class Autocast(nn.Module):
    """Two layers under autocast, which may be disabled."""

    def __init__(self, width: int, enabled: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.enabled = enabled

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enabled):
            y: Tensor = self.layers(x)
        return y.float()


def train_in_float32(broken: bool) -> Summary:
    """Compute in 32 bits, which takes half of the step at the peak; the healthy twin computes in 16 bits.

    The work is counted from the model. The fake device has no peak, so that of an NVIDIA A10 is used: 31.2 TFLOP/s in
    32 bits, 125 in 16.
    """
    device, width = "NVIDIA A10", 512
    model = nn.Sequential(Autocast(width, not broken))
    summary = train_counted(model, torch.randn(256, width), _step_ns(broken))
    work = summary.work
    assert work is not None
    peak, _ = find_peak(device, PEAKS)
    kinds = []
    for kind in work.kinds:
        seconds = peak_seconds(Kind(kind.dtype, "matmul"), kind.flops, peak, Tf32Flags(matmul=False, conv=False))
        peak_ns, half_ns = (None if one is None else one * 1e9 for one in seconds)
        kinds.append(replace(kind, peak_ns=peak_ns, half_ns=half_ns))
    used = sum(kind.peak_ns or 0 for kind in kinds) / summary.step_p50_ns
    return diagnose_again(
        summary, work=replace(work, kinds=tuple(kinds), mfu=used, hfu=used, peak=device, no_peak=None)
    )


class OneHead(nn.Module):
    """One attention head, fused or not."""

    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unsqueeze(1).chunk(3, -1)
        if self.fused:
            return scaled_dot_product_attention(query, key, value).squeeze(1)
        scores = query @ key.transpose(-1, -2) / sqrt(query.shape[-1])
        return (scores.softmax(-1) @ value).squeeze(1)  # type: ignore[no-any-return]


def train_with_unfused_attention(broken: bool) -> Summary:
    """Compute one attention head as product, softmax, product; the healthy twin calls SDPA, in shorter steps."""
    return train_counted(nn.Sequential(OneHead(16, fused=not broken)), torch.randn(2, 64, 16), _step_ns(broken))


def _step_ns(broken: bool) -> int:
    """Return the length of a step whose FLOPs are counted; the healthy twin is a quarter faster."""
    return COUNTED_STEP_NS if broken else COUNTED_STEP_NS * 3 // 4
