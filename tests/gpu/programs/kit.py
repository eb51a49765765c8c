"""What the programs share: their table, kernels of known lengths, the loop, their own clocks, the file of their truth.

TRUTH_DRY=1: no GPU; the device is the CPU and a sleeping kernel is time.sleep.
TRUTH_SAVE: the file that gets the truth. It imports nothing of autoprof.
"""

import hashlib
import itertools
import json
import os
import random
import statistics
import time
from collections import namedtuple
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy
import torch
from torch import nn

DRY = os.environ.get("TRUTH_DRY") == "1"
DEVICE = "cpu" if DRY else "cuda"
_cycles_per_ms = None
_spans = {}
_steps = []  # (perf_counter, event) at the begin of each step
_host = {}
PROGRAMS = {}
"""The programs by name."""
Program = namedtuple("Program", "run expected")


def program(name, steps, *claims, arguments=(), **expected):
    """Enter a function in the table, with what a report of it should say."""

    def enter(run):
        PROGRAMS[name] = Program(partial(run, *arguments), {"steps": steps, "claims": claims, **expected})
        return run

    return enter


def row(module, phase, length=None, **more):
    """The claim that a row has the length of a span of the program's, by default that of the module's name."""
    length = module.split(".")[-1] if length is None else length
    return {"kind": "row", "module": module, "phase": phase, "is": length, **more}


def _event():
    if DRY:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _ms(begin, end):
    return (end - begin) * 1e3 if DRY else begin.elapsed_time(end)


def _wait():
    if not DRY:
        torch.cuda.synchronize()


def _calibrate():
    """Measure the cycles of a millisecond, by events, after warm-up kernels."""
    global _cycles_per_ms
    torch.zeros(8, device="cuda").add_(1)
    torch.cuda._sleep(20_000_000)
    torch.cuda._sleep(20_000_000)
    rates = []
    for _ in range(3):
        begin = _event()
        torch.cuda._sleep(10_000_000)
        end = _event()
        torch.cuda.synchronize()
        rates.append(10_000_000 / begin.elapsed_time(end))
    _cycles_per_ms = statistics.median(rates)


def sleep(ms):
    """A kernel of this length on the current stream; the host does not wait."""
    if DRY:
        time.sleep(ms / 1e3)
    else:
        torch.cuda._sleep(int(ms * _cycles_per_ms))


@contextmanager
def span(name):
    """The program's own clock around its own call: two events on the current stream."""
    begin = _event()
    yield
    _spans.setdefault(name, []).append((begin, _event()))


@contextmanager
def host_span(name):
    """The same by the host's clock."""
    begin = time.perf_counter()
    yield
    _host.setdefault(name, []).append((time.perf_counter() - begin) * 1e3)


def step():
    """The begin of a step."""
    _steps.append((time.perf_counter(), _event()))


class Slow(nn.Module):
    """A layer, and a kernel of this length in its forward; without a name, as in a CUDA graph, without a clock."""

    def __init__(self, ms, name="slow", width=256):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.ms, self.name = ms, name

    def forward(self, x):
        x = self.linear(x)
        with span(self.name) if self.name else nullcontext():
            sleep(self.ms)
        return torch.relu(x)


class Net(nn.Module):
    """Parts by name, called in their order."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.to(DEVICE)

    def forward(self, x):
        for part in self.children():
            x = part(x)
        return x


def last(width=256):
    """The last layer of a model: ten classes."""
    return nn.Linear(width, 10)


def batch(rows=64, width=256):
    """Inputs and labels on the device."""
    return torch.randn(rows, width, device=DEVICE), torch.randint(0, 10, (rows,), device=DEVICE)


def loader(samples, rows):
    """A loader of a data set, or of so many random samples."""
    if isinstance(samples, int):
        samples = torch.utils.data.TensorDataset(torch.randn(samples, 256), torch.randint(0, 10, (samples,)))
    return torch.utils.data.DataLoader(samples, batch_size=rows, pin_memory=not DRY)


def train(model, batches, *, optimizer=None, criterion=nn.functional.cross_entropy, end=None):
    """Train on batches, or so many times on one; return the losses. ``end`` gets the number and the loss of a step."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for number, (inputs, labels) in enumerate([batch()] * batches if isinstance(batches, int) else batches):
        step()
        inputs, labels = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
        if end is not None:
            end(number, loss)
    return torch.stack(losses)


def captured(warm_up, body):
    """Warm up three times on a side stream, then capture the body; return what replays it."""
    if DRY:
        for _ in range(3):
            warm_up()
        return warm_up
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            warm_up()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph.replay


def checksum(*things):
    """A hash over the bits of tensors, in order."""
    sha = hashlib.sha256()
    for thing in things:
        tensors = list(thing.state_dict().values()) if isinstance(thing, torch.nn.Module) else [thing]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:24]


def random_state():
    """A hash over the states of all random generators."""
    sha = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    if not DRY:
        sha.update(torch.cuda.get_rng_state().numpy().tobytes())
    sha.update(repr(random.getstate()).encode())
    sha.update(numpy.random.get_state()[1].tobytes())
    return sha.hexdigest()[:24]


def _figures(values):
    return {
        "n": len(values),
        "p50": round(statistics.median(values), 4),
        "mean": round(statistics.fmean(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
    }


def save(*models, losses=None, **extra):
    """Wait for the device, then print the truth as one line of JSON and keep it."""
    _wait()
    end = (time.perf_counter(), _event())
    _wait()
    marks = [*_steps, end]
    result = {
        "device": "cpu" if DRY else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cycles_per_ms": _cycles_per_ms,
        "spans": {name: _figures([_ms(*pair) for pair in pairs]) for name, pairs in _spans.items()},
        "host_spans": {name: _figures(values) for name, values in _host.items()},
    }
    if len(_steps) > 12:
        # the last step is left out: its end is the wait above
        result["step"] = _figures([_ms(a[1], b[1]) for a, b in itertools.pairwise(_steps)])
        result["step_host"] = _figures([(b[0] - a[0]) * 1e3 for a, b in itertools.pairwise(_steps)])
        result["wall_ms_per_step"] = round((marks[-1][0] - marks[10][0]) * 1e3 / (len(marks) - 11), 4)
        result["own_steps"] = len(_steps)
    if not DRY:
        result["peak_bytes"] = torch.cuda.max_memory_allocated()
        result["cuda_initialized_in"] = os.getpid()
    if models:
        result["checksum"] = checksum(*models)
        result["random_state"] = random_state()
    if losses is not None:
        result["losses"], result["finite"] = checksum(losses), bool(losses.isfinite().all())
    result.update(extra)
    text = json.dumps(result)
    print("TRUTH " + text, flush=True)
    path = os.environ.get("TRUTH_SAVE")
    if path:
        with open(path, "w") as file:
            file.write(text + "\n")


def begin():
    """Seed all generators; measure the device's cycles."""
    random.seed(0)
    numpy.random.seed(0)
    if not DRY:
        _calibrate()
    torch.manual_seed(0)
