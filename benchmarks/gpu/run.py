"""Measure on the device: the variants, the cost of a reading, and the promises."""

from __future__ import annotations

from itertools import cycle
from statistics import median
from typing import Any, Final

import torch

from autoprof.devices import DeviceClock
from autoprof.devices.cuda import CudaEvents

from .. import floors, machine, ours
from .. import others as instead
from ..run import measure_workload, print_line
from ..variant import Variant
from ..workloads import BUILDERS, tiny_layers
from . import checks, events

HAND_POOL: Final = 8192
"""Events that the hand-written floor takes in turn, as somebody would who knows that making one is slow."""


def read_event() -> Any:
    """Return the floor's clock: an event from a ring, recorded on the current stream."""
    ring = cycle([torch.cuda.Event(enable_timing=True) for _ in range(HAND_POOL)])  # type: ignore[no-untyped-call]

    def read() -> Any:
        event = next(ring)
        event.record()
        return event

    return read


def all_variants() -> list[Variant]:
    """Return every variant, the floors with events in the clock's place."""
    read = read_event()
    return [
        Variant(),
        *ours.variants(),
        floors.ForwardFloor(read),
        floors.BackwardFloor(read),
        *instead.variants(torch.cuda.synchronize, read),
    ]


def run(models: tuple[str, ...], size: str, rounds: int, *, quick: bool) -> dict[str, Any]:
    """Measure everything and return plain JSON types."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    workloads = [BUILDERS[name](device, size) for name in models]
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "options": {"size": size, "rounds": rounds, "quick": quick},
        "workloads": {
            workload.name: measure_workload(workload, all_variants(), rounds=rounds, progress=print_line)
            for workload in workloads
        },
    }
    for measured in results["workloads"].values():
        measured["host_blocks"] = {
            name: [_on_host(block) for block in blocks] for name, blocks in measured["blocks"].items()
        }
    print_line("events")
    layers = tiny_layers(device)
    source = CudaEvents()
    results["events"] = events.per_step(source, layers.model, layers.step, layers.config, 200 if quick else 1000)
    results["costs"] = events.costs(source, DeviceClock(source), torch.cuda.synchronize)
    print_line("never waits")
    results["never_waits"] = {workload.name: checks.never_waits(workload) for workload in (layers, *workloads)}
    print_line("kernels of known length")
    results["kernels"] = checks.known_kernels()
    print_line("")
    return results


def _on_host(block: dict[str, Any]) -> dict[str, Any]:
    """Return the block with the host's own time of a step for its value."""
    extra = (sum(block["ends_ns"]) + block["flush_ns"]) / len(block["steps_ns"])
    return {**block, "value_ns": median(block["steps_ns"]) + extra}
