"""Readers of a run that a framework's callback recorded."""

import json
from pathlib import Path
from typing import Any

from autoprof import Summary


def times(summary: Summary) -> dict[str, int]:
    """Return how often each kind of excluded time occurred."""
    return {one.name: one.calls for one in summary.stages}


def frames(folder: Path) -> list[dict[str, Any]]:
    """Return the records of the first rank."""
    lines = (folder / "rank0" / "steps.jsonl").read_text("utf-8").splitlines()
    return [record for line in lines if "step_time_s" in (record := json.loads(line))]


def ending(folder: Path) -> str:
    """Return how the run ended, as ``run.json`` says."""
    text: str = json.loads((folder / "run.json").read_text("utf-8"))["ended"]
    return text


def has_ended(folder: Path) -> bool:
    """Return whether the run's session is closed."""
    return bool(json.loads((folder / "run.json").read_text("utf-8")).get("ended"))
