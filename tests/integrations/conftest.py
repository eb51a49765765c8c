"""Trainings of frameworks: a configuration that records each step, and the true number of optimizer steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attached import open_sessions
from torch.optim.optimizer import register_optimizer_step_post_hook

from autoprof.base.process import lifecycle


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """Return a configuration that records every step, and prints nothing."""
    sample = {"budget": None, "warmup": 0}
    return {
        "targets": [{"match": ".*"}],
        "output": str(tmp_path / "runs"),
        "sample": sample,
        "monitor": "off",
        "flops": "off",
        "sinks": {"jsonl": {}},
    }


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no session is open after a test."""
    monkeypatch.setattr(lifecycle, "_program_instruments", False)
    yield
    assert not open_sessions()


@pytest.fixture
def optimizer_steps() -> Iterator[list[int]]:
    """Count the steps of every torch optimizer: the list has an entry for each."""
    steps: list[int] = []
    handle = register_optimizer_step_post_hook(lambda one, *_: steps.append(id(one)))
    yield steps
    handle.remove()
