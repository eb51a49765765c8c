"""The defects of the built-in rules: for each rule, trainings with its defect, and the same trainings without it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from autoprof.base.summary import Summary

from . import calls, data, machine, memory, modules, ranks


class Defect(NamedTuple):
    """A small training with a defect that a rule finds: ``train(True)``; ``train(False)`` is the healthy twin."""

    rule: str
    name: str
    train: Callable[[bool], Summary]


DEFECTS: Final = (
    Defect("data-wait", "slow loader", data.train_with_slow_loader),
    Defect("h2d-copy", "batches copied synchronously", data.train_with_pageable_copies),
    Defect("recompute", "activation checkpointing", memory.train_checkpointed),
    Defect("recompute", "checkpointing with free memory", memory.train_checkpointed_with_free_memory),
    Defect("backward-ratio", "backward 15 x forward", modules.train_with_slow_backward),
    Defect("unused-gradients", "a backbone that is not trained", modules.train_with_unused_gradients),
    Defect("repeated-backward", "state carried with its graph", modules.train_with_carried_state),
    Defect("repeated-calls", "features computed twice", modules.train_with_repeated_calls),
    Defect("forward-only", "the model runs again for a metric", modules.train_with_metric_forwards),
    Defect("python-thread", "a thread that polls", machine.train_beside_a_polling_thread),
    Defect("torch-threads", "more threads than processors", machine.train_with_many_threads),
    Defect("hot-module", "one block ten times its siblings", modules.train_with_hot_layer),
    Defect("one-hot", "a table read by a product", modules.train_with_one_hot_rows),
    Defect("optimizer", "optimizer in a Python loop", modules.train_with_looping_optimizer),
    Defect("small-batch", "a batch of one sample", modules.train_with_tiny_modules),
    Defect("launch-bound", "tiny kernels, slow launches", modules.train_with_slow_launches),
    Defect("precision", "float32 instead of 16 bits", modules.train_in_float32),
    Defect("precision", "float64 as numpy has it", modules.train_in_float64),
    Defect("attention", "unfused attention", modules.train_with_unfused_attention),
    Defect("comm-exposed", "gradients averaged one by one", ranks.train_with_unbucketed_gradients),
    Defect("sync-call", "a value read after each layer", calls.train_with_reads),
    Defect("logging", "metrics in every step", calls.train_with_metrics),
    Defect("logging", "a log line in every step", calls.train_with_log_lines),
    Defect("unattributed", "pictures drawn in each step", calls.train_with_images),
    Defect("excluded", "a checkpoint after each step", calls.train_with_saving),
    Defect("excluded", "validation every fourth step", calls.train_with_validation),
    Defect("debug-mode", "anomaly detection left on", machine.train_with_anomaly_detection),
    Defect("hot-module", "a snapshot every sixth step", calls.train_with_stalls),
    Defect("data-wait", "workers restarted in each epoch", data.train_with_restarts),
    Defect("jitter", "explicit garbage collections", calls.train_with_collections),
    Defect("memory-growth", "a list that keeps activations", memory.train_with_leak),
    Defect("memory-pressure", "memory nearly full", memory.train_in_small_memory),
    Defect("fragmentation", "growing sequences", memory.train_with_growing_lengths),
    Defect("recompile", "changing shapes", machine.train_with_changing_shapes),
    Defect("straggler", "one slow rank", ranks.train_with_slow_rank),
    Defect("overhead", "steps too short to profile", machine.train_in_short_steps),
)
