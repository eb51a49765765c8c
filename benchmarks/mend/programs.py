"""The trainings of ``tests/defects`` as programs with settings, all with the same settings.

The defect of a program is the value of one of its settings; with any other value it is the healthy twin. Settings that
a program does not use have no effect, so the one that mends it must be found by the explanation.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoprof.summary import Summary
from tests.defects import DEFECTS, Defect
from tests.defects.training import CONFIG, COUNTED_CONFIG, MEMORY_CONFIG

SETTINGS: Final[dict[str, Any]] = {
    "num_workers": 4,
    "persistent_workers": True,
    "pin_memory": True,
    "gradient_checkpointing": False,
    "fused_optimizer": True,
    "batch_size": 64,
    "precision": "bfloat16",
    "attention": "sdpa",
    "bucket_gradients": True,
    "constant_shapes": True,
    "gc_freeze": True,
    "keep_outputs": False,
    "expandable_segments": False,
    "debug": {"anomaly detection": False, "TORCH_DISTRIBUTED_DEBUG": False},
    "code": {"0": "optimized", "1": "optimized", "2": "optimized", "3": "optimized"},
    "every": {
        "read values": 16,
        "logging": 16,
        "Logging/Metrics": 16,
        "Snapshot": 64,
        "save_image": 64,
        "torch.save": 32,
        "validation": 64,
    },
}
"""The settings of a healthy program."""

BROKEN: Final[dict[str, tuple[str, Any]]] = {
    "slow loader": ("num_workers", 0),
    "workers restarted in each epoch": ("persistent_workers", False),
    "batches copied synchronously": ("pin_memory", False),
    "activation checkpointing": ("gradient_checkpointing", True),
    "checkpointing with free memory": ("gradient_checkpointing", True),
    "backward 15 x forward": ("code.2", "reference"),
    "one block ten times its siblings": ("code.1", "reference"),
    "optimizer in a Python loop": ("fused_optimizer", False),
    "a batch of one sample": ("batch_size", 1),
    "tiny kernels, slow launches": ("batch_size", 1),
    "float64 as numpy has it": ("precision", "float64"),
    "float32 instead of 16 bits": ("precision", "float32"),
    "unfused attention": ("attention", "eager"),
    "gradients averaged one by one": ("bucket_gradients", False),
    "a value read after each layer": ("every.read values", 1),
    "metrics in every step": ("every.Logging/Metrics", 1),
    "a log line in every step": ("every.logging", 1),
    "pictures drawn in each step": ("every.save_image", 1),
    "a checkpoint after each step": ("every.torch.save", 1),
    "validation every fourth step": ("every.validation", 4),
    "anomaly detection left on": ("debug.anomaly detection", True),
    "a snapshot every sixth step": ("every.Snapshot", 6),
    "explicit garbage collections": ("gc_freeze", False),
    "a list that keeps activations": ("keep_outputs", True),
    "changing shapes": ("constant_shapes", False),
}
"""The setting of each defect, and its value. Defects of the machine, of another rank or of memory sizes have none."""


@dataclass(frozen=True, slots=True)
class Program:
    """A training with settings: that of one defect. ``setting`` is None where no setting mends it."""

    defect: Defect

    @property
    def name(self) -> str:
        """The name of the defect."""
        return self.defect.name

    @property
    def setting(self) -> tuple[str, Any] | None:
        """The setting that is the defect, and its broken value."""
        return BROKEN.get(self.name)

    def settings(self, *, broken: bool) -> dict[str, Any]:
        """Return the settings of the program with its defect, or of the healthy twin."""
        settings = copy.deepcopy(SETTINGS)
        if broken and self.setting is not None:
            group, name = _place(settings, self.setting[0])
            group[name] = self.setting[1]
        return settings

    def run(self, settings: dict[str, Any], output: Path, *, broken: bool = False) -> Path:
        """Train with these settings; return the run's folder. ``broken`` decides where there is no setting."""
        from autoprof._reports.summary_text import render_summary
        from autoprof._storage.runs import RunFolder, find_run

        if self.setting is not None:
            group, name = _place(settings, self.setting[0])
            broken = group[name] == self.setting[1]
        for config in (CONFIG, MEMORY_CONFIG, COUNTED_CONFIG):
            config.update(output=str(output), sinks={"jsonl": {"flush_s": 0}})  # for ``autoprof compare``
        summary: Summary = self.defect.train(broken)
        if not output.exists():  # a training of several processes keeps its own folder
            RunFolder.create(output).finish("closed")
        folder = find_run(output)
        RunFolder(folder).write_summary(summary, render_summary(summary))  # as diagnosed for another machine
        return folder


def programs() -> list[Program]:
    """Return a program for each defect of the rules."""
    return [Program(defect) for defect in DEFECTS]


def _place(settings: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """Return the mapping that has the setting, and its name there: ``every.torch.save``."""
    group, dot, name = key.partition(".")
    return (settings[group], name) if dot and isinstance(settings.get(group), dict) else (settings, key)
