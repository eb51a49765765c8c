"""The defects of the built-in rules: for each rule, trainings with its defect, and the same trainings without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...diagnose import Defect, Rule
from . import calls, data, machine, memory, modules, ranks

DEFECTS: Final[Mapping[str, tuple[Defect, ...]]] = {
    "data-wait": (Defect("slow loader", data.train_with_slow_loader),),
    "h2d-copy": (Defect("batches copied synchronously", data.train_with_pageable_copies, "fake device"),),
    "recompute": (
        Defect("activation checkpointing", memory.train_checkpointed),
        Defect("checkpointing with free memory", memory.train_checkpointed_with_free_memory),
    ),
    "backward-ratio": (Defect("backward 15 x forward", modules.train_with_slow_backward),),
    "hot-module": (Defect("one block ten times its siblings", modules.train_with_hot_layer),),
    "optimizer": (
        Defect("optimizer in a Python loop", modules.train_with_looping_optimizer),
        Defect("Adam's state in a full memory", memory.train_with_large_state),
    ),
    "small-batch": (Defect("a batch of one sample", modules.train_with_tiny_modules),),
    "launch-bound": (Defect("tiny kernels, slow launches", modules.train_with_slow_launches, "fake device"),),
    "precision": (
        Defect("float32 instead of 16 bits", modules.train_in_float32, "fake device"),
        Defect("float64 as numpy has it", modules.train_in_float64),
    ),
    "attention": (Defect("unfused attention", modules.train_with_unfused_attention, "fake device"),),
    "comm-exposed": (Defect("gradients averaged one by one", ranks.train_with_unbucketed_gradients),),
    "sync-call": (Defect("a value read after each layer", calls.train_with_reads, "fake device"),),
    "logging": (
        Defect("metrics in every step", calls.train_with_metrics),
        Defect("a log line in every step", calls.train_with_log_lines),
    ),
    "unattributed": (Defect("pictures drawn in each step", calls.train_with_images, "real clock"),),
    "excluded": (
        Defect("a checkpoint after each step", calls.train_with_saving),
        Defect("validation every fourth step", calls.train_with_validation),
    ),
    "busy-machine": (Defect("others hold the processors", machine.train_beside_others),),
    "debug-mode": (Defect("anomaly detection left on", machine.train_with_anomaly_detection),),
    "jitter": (
        Defect("a snapshot every sixth step", calls.train_with_stalls),
        Defect("workers restarted in each epoch", data.train_with_restarts),
        Defect("explicit garbage collections", calls.train_with_collections, "real clock"),
    ),
    "memory-growth": (Defect("a list that keeps activations", memory.train_with_leak, "real clock"),),
    "memory-pressure": (Defect("memory nearly full", memory.train_in_small_memory),),
    "fragmentation": (Defect("growing sequences", memory.train_with_growing_lengths),),
    "recompile": (Defect("changing shapes", machine.train_with_changing_shapes, "real clock"),),
    "straggler": (Defect("one slow rank", ranks.train_with_slow_rank, "real clock"),),
    "overhead": (Defect("steps too short to profile", machine.train_in_short_steps),),
}


def defects_of(rule: Rule) -> tuple[Defect, ...]:
    """Return the defects of a rule: its own where it has some, as a rule of another package does."""
    return rule.defects or DEFECTS.get(rule.name, ())
