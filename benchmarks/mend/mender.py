"""A program that mends programs: it reads ``explain.json`` and a program's settings, and changes one setting.

It knows the schema of ``autoprof explain --json`` and the settings that training programs usually have. It knows
nothing of the program: neither its source, nor its report, nor its defect.

    python -m benchmarks.mend.mender explain.json settings.json
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

Settings = dict[str, Any]

SETTING_OF: Final = {
    "loader.num_workers": "num_workers",
    "loader.persistent_workers": "persistent_workers",
    "loader.pin_memory": "pin_memory",
    "checkpointing": "gradient_checkpointing",
    "optimizer.fused": "fused_optimizer",
    "batch_size": "batch_size",
    "precision": "precision",
    "attention": "attention",
    "communication.bucketed": "bucket_gradients",
    "shapes.constant": "constant_shapes",
    "gc.freeze": "gc_freeze",
    "tensors.kept": "keep_outputs",
    "allocator.expandable_segments": "expandable_segments",
}
"""The name of a setting in the program, by the change of the schema."""
READS: Final = {"__bool__", "__float__", "__int__", "item", "tolist", "cpu", "numpy"}
"""Calls that read a value from the device."""
FACTOR: Final = 16
"""How much larger or smaller a number becomes."""


class Mended(NamedTuple):
    """The new settings, the change in words, and the cause that asked for it; None where nothing was changed."""

    settings: Settings
    change: str
    cause: dict[str, Any] | None


def mend(explanation: dict[str, Any], settings: Settings) -> Mended:
    """Apply the experiment of the first cause that a setting can be changed for."""
    for cause in explanation["causes"]:
        changed = copy.deepcopy(settings)
        change = _apply(cause["experiment"], cause["place"], changed)
        if change and changed != settings:
            return Mended(changed, change, cause)
    return Mended(settings, "", None)


def _apply(experiment: dict[str, Any], place: dict[str, Any], settings: Settings) -> str:
    change, target = experiment["change"], experiment["target"]
    if change == "call.every":
        words = {target, place["call"], place["function"], place["name"]}
        words |= {"read values"} if target in READS else set()
        return _change_named(settings["every"], lambda name: name in words, "every", lambda value: value * FACTOR)
    if change == "debug.switch":
        return _change_named(settings["debug"], lambda name: name in (target or ""), "debug", lambda _value: False)
    if change == "module.code":
        return _change_named(settings["code"], lambda name: name == target, "code", lambda _value: "optimized")
    name = SETTING_OF.get(change)
    if name is None:
        return ""
    settings[name] = _new_value(experiment, settings[name])
    return f"{name} = {settings[name]}"


def _change_named(entries: Settings, is_meant: Callable[[str], bool], word: str, new: Callable[[Any], Any]) -> str:
    for name, value in entries.items():
        if is_meant(name):
            entries[name] = new(value)
            return f"{word}[{name}] = {entries[name]}"
    return ""


def _new_value(experiment: dict[str, Any], old: Any) -> Any:
    operation = experiment["operation"]
    if operation == "set":
        return experiment["value"]
    return max(old * FACTOR, 4) if operation == "increase" else max(old // FACTOR, 1)


if __name__ == "__main__":
    explained, known = (json.loads(Path(file).read_text(encoding="utf-8")) for file in sys.argv[1:3])
    print(json.dumps(mend(explained, known)._asdict(), indent=1))
