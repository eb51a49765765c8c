"""Measure on the device, part after part: the tests, the promises, the cost of a reading, the variants."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from time import monotonic
from typing import Any, Final

import torch

from autoprof.devices import DeviceClock, device_of

from .. import machine
from ..digest import ROOT
from ..paired import measure_blocks, print_line, time_turn
from ..variants import variants
from ..workloads import BUILDERS, Workload
from . import checks, events
from .deadline import Deadline
from .default import default_runs
from .target import Target

HAND_POOL: Final = 8192
"""Events that the hand-written floor takes in turn, as somebody would who knows that making one is slow."""
PARTS: Final = ("tests", "device", "events", "never_waits", "default", "workloads")
TESTS_SHARE: Final = 0.45
"""The largest part of the time that the tests may take."""
BLOCK_S: Final = 0.4
"""The length of a block."""
Results = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure, and for how long."""

    parts: tuple[str, ...] = PARTS
    models: tuple[str, ...] = ("layers", "reference", "gpt")
    size: str = "large"
    rounds: int = 20
    quick: bool = False
    """Show that everything runs, in blocks too short to mean anything."""
    seconds: float = 540


def run(target: Target, options: Options, save: Callable[[Results], None]) -> Results:
    """Measure the parts and return plain JSON types; ``save`` gets what there is after each part.

    A part that raises is noted, and the others are measured.
    """
    torch.manual_seed(0)
    deadline = Deadline(options.seconds)
    workloads: dict[str, Workload] = {}

    def built(name: str) -> Workload:
        if name not in workloads:
            workloads[name] = BUILDERS[name](target.place, options.size)
        return workloads[name]

    results: Results = {
        "machine": {**machine.describe(), "gpu": device_of(target.place).name(target.place)},
        "options": {"size": options.size, "rounds": options.rounds, "seconds": options.seconds, "quick": options.quick},
        "seconds": {},
        "failed": {},
    }
    measure: dict[str, Callable[[], Any]] = {
        "tests": lambda: run_tests(deadline.share(TESTS_SHARE).left_s()),
        "device": lambda: read_device(target.place),
        "events": lambda: measure_events(target),
        "never_waits": lambda: {name: checks.never_waits(built(name), target) for name in options.models},
        "default": lambda: default_runs(target, quick=options.quick),
        "workloads": lambda: measure_workloads(target, options, built, deadline),
    }
    for name in (name for name in PARTS if name in options.parts):
        print_line(name)
        began = monotonic()
        try:
            results[name] = measure[name]()
        except Exception:  # the next session on such a machine may be weeks away: measure the rest
            results["failed"][name] = traceback.format_exc()
        results["seconds"][name] = round(monotonic() - began, 1)
        save(results)
    print_line("")
    return results


def run_tests(limit_s: float) -> Results:
    """Run the tests that are marked ``gpu`` in a process of their own; end it after ``limit_s``."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as stopped:
        output = stopped.stdout or b""
        text = output.decode(errors="replace") if isinstance(output, bytes) else output
        return {"passed": False, "summary": f"stopped after {limit_s:.0f} s", "output": text[-20_000:]}
    lines = done.stdout.strip().splitlines() or ["no output"]
    return {"passed": done.returncode == 0, "summary": lines[-1], "output": done.stdout[-20_000:]}


def read_device(place: torch.device) -> Results:
    """Return the peak FLOP/s and the memory of the device, and one reading of its telemetry."""
    device = device_of(place)
    peak, no_peak = device.peak(place)
    reader, no_telemetry = device.telemetry(place)
    reading = None
    if reader is not None:
        try:
            reading = dict(reader.read())
        finally:
            reader.close()
    memory = device.memory(place)
    try:
        capacity = memory.capacity_bytes()
    finally:
        memory.close()
    return {
        "peak_tflops": None if peak is None else dict(peak.tflops),
        "no_peak": no_peak,
        "telemetry": reading,
        "no_telemetry": no_telemetry,
        "capacity_bytes": capacity,
    }


def measure_events(target: Target) -> Results:
    """Return the cost of a reading, and how far events scatter."""
    source = target.events()
    return {
        "costs": events.costs(source, DeviceClock(source), target.synchronize),
        "scatter": events.scatter(source, target.synchronize, target.calibrate()),
    }


def read_event(target: Target) -> Callable[[], Any]:
    """Return the floor's clock: an event from a ring, recorded on the current stream."""
    ring = cycle([target.event() for _ in range(HAND_POOL)])

    def read() -> Any:
        event = next(ring)
        event.record()
        return event

    return read


def measure_workloads(
    target: Target, options: Options, built: Callable[[str], Workload], deadline: Deadline
) -> dict[str, Results]:
    """Measure all variants of each model, each in an equal share of the time that is left."""
    found: dict[str, Results] = {}
    for number, name in enumerate(options.models):
        share = deadline.share(1 / (len(options.models) - number))
        workload = built(name)
        workload.step()
        step_ns, _ = time_turn(workload.step, 3, finish=target.synchronize)
        steps = 2 if options.quick else max(2, min(400, round(BLOCK_S * 1e9 / step_ns)))
        with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder:
            chosen = variants(folder, target.synchronize, read_event(target))
            blocks = measure_blocks(
                partial(built, name),
                chosen,
                rounds=options.rounds,
                steps=steps,
                settling=1 if options.quick else 12,
                left_s=share.left_s,
            )
        found[name] = {
            "title": workload.title,
            "modules": len(workload.targets),
            "steps": steps,
            "rounds": blocks.rounds,
            "labels": {variant.name: variant.label for variant in chosen},
            "errors": blocks.errors,
            "pairs": blocks.pairs,
        }
    return found
