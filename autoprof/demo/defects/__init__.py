"""Small trainings with one defect each, and their healthy twins: what every rule that judges is proved by.

They are real: a model of torch's modules, autograd, an optimizer, a loader. Time is the fake clock's, which the
operators advance (on a fake device where the defect is the device's), so a verdict does not depend on the machine.
Only what no clock can stand for, memory, the garbage collector, the compiler, other ranks, takes its real course.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...summary import Summary
from . import arithmetic, clocked, device, link, memory, ranks, real
from .models import Layer, four, train

__all__ = ["PROGRAMS", "Layer", "Program", "four", "train"]


@dataclass(frozen=True, slots=True)
class Program:
    """A defect: the rule that must find it, and the training with it (``run(True)``) or without (``run(False)``)."""

    name: str
    rule: str
    run: Callable[[bool], Summary]
    on_machine: bool = False
    """Whether it takes its course on the real clock, where other programs of the machine may add a finding."""
    on_fake_device: bool = False
    """Whether it runs on the fake device of ``autoprof.testing``: no machine needs to have one for it."""


PROGRAMS: Final = (
    Program("slow loader", "data-wait", clocked.slow_loader),
    Program("activation checkpointing", "recompute", clocked.checkpointing),
    Program("backward 15 x forward", "backward-ratio", clocked.backward),
    Program("one module ten times the others", "hot-module", clocked.dominant),
    Program("optimizer in a Python loop", "optimizer", clocked.loop_optimizer),
    Program("tiny kernels, slow launches", "launch-bound", device.launches, on_fake_device=True),
    Program("a value read after each layer", "sync-call", device.reading, on_fake_device=True),
    Program("batches copied in the way", "h2d-copy", device.copying, on_fake_device=True),
    Program("gradients averaged one by one", "comm-exposed", link.averaging),
    Program("metrics in every step", "logging", clocked.metrics),
    Program("a log line in every step", "logging", clocked.log_lines),
    Program("a snapshot every sixth step", "jitter", clocked.stalls),
    Program("garbage collected by hand", "jitter", real.collections, on_machine=True),
    Program("a list that keeps activations", "memory-growth", real.leak, on_machine=True),
    Program("shapes that change", "recompile", real.changing_shapes, on_machine=True),
    Program("one rank slower than another", "straggler", ranks.slow_rank, on_machine=True),
    Program("memory nearly full", "memory-pressure", clocked.small_memory),
    Program("checkpoints with room to spare", "recompute", memory.needless_checkpointing),
    Program("sequences that grow", "fragmentation", memory.pieces),
    Program("Adam's state in a full memory", "optimizer", memory.large_state),
    Program("steps too short to profile", "overhead", clocked.own_cost),
    Program("32 bits where 16 would do", "precision", arithmetic.full_precision, on_fake_device=True),
    Program("attention written out", "attention", arithmetic.written_attention, on_fake_device=True),
    Program("convolutions not tried out", "convolution", arithmetic.untried_convolutions, on_fake_device=True),
)
