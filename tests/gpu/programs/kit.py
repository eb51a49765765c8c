"""What the programs share: a kernel of a known length, the program's own clocks, and the file of its own truth.

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
from contextlib import contextmanager, nullcontext

import torch

DRY = os.environ.get("TRUTH_DRY") == "1"
DEVICE = "cpu" if DRY else "cuda"
_cycles_per_ms = None
_spans = {}
_steps = []  # (perf_counter, event) at the begin of each step
_host = {}


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


def calibrate():
    """Measure the cycles of a millisecond, by events, after warm-up kernels. Called once, before the model is made."""
    global _cycles_per_ms
    import numpy

    random.seed(0), numpy.random.seed(0)
    if DRY:
        return
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


def side_stream():
    return None if DRY else torch.cuda.Stream()


def on(stream):
    return nullcontext() if DRY else torch.cuda.stream(stream)


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
    import numpy

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


def save(models=(), **extra):
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
    result.update(extra)
    text = json.dumps(result)
    print("TRUTH " + text, flush=True)
    path = os.environ.get("TRUTH_SAVE")
    if path:
        with open(path, "w") as file:
            file.write(text + "\n")
