"""Large models: the work of a run grows in proportion to the number of modules, from set-up to the last report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import autoprof
from autoprof._metrics.flops import FlopCount, FlopKey, Kind
from autoprof._metrics.flops import count as counter_module
from autoprof.frame import Phase

SIZES = (40, 80, 160)
STEPS = 6
PACKAGE = str(Path(autoprof.__file__).parent)


def calls_in(action: Callable[[], object]) -> int:
    """Return the number of calls of autoprof's functions, and of functions in C by them, that an action makes."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"} and frame.f_code.co_filename.startswith(PACKAGE)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


def one_matmul_each(model: nn.Module, call: Any, **more: Any) -> FlopCount:
    """Return a count as of a model in which each layer has one product."""
    layers = [fqn for fqn, module in model.named_modules() if isinstance(module, nn.Linear)]
    return FlopCount({FlopKey(fqn, Phase.FORWARD, Kind("float32", "matmul")): 1000 for fqn in layers})


def train(layers: int, output: Path, sample: dict[str, Any]) -> dict[str, int]:
    """Train a chain of layers with a session; return the calls of each part of the run."""
    config = {
        "targets": [{"match": r"\d+"}],
        "step": "manual",
        "sample": sample,
        "sinks": {"console": {}, "log": {}, "jsonl": {}, "csv": {}},
        "output": str(output),
    }
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))
    x = torch.ones(1, 2)
    session: Any = None

    def open_session() -> None:
        nonlocal session
        session = autoprof.instrument(model, config)

    def steps() -> None:
        for _ in range(STEPS):
            model(x).sum().backward()
            session.step()

    opening = calls_in(open_session)
    return {"opening": opening, "running": calls_in(steps) + calls_in(lambda: session.close())}


@pytest.mark.parametrize("sample", [{"budget": None, "warmup": 1}, {"warmup": 1}], ids=["every step", "sampled"])
def test_the_work_of_a_run_grows_in_proportion_to_its_modules(
    sample: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the modules cost twice the further calls; where the work is quadratic, they cost four times as many."""
    monkeypatch.setattr(counter_module, "count_call", one_matmul_each)
    train(2, tmp_path / "first", sample)  # imports
    small, middle, large = (train(layers, tmp_path / str(layers), sample) for layers in SIZES)
    growth = {part: (large[part] - middle[part]) / (middle[part] - small[part]) for part in small}
    assert max(growth.values()) < 2.6, growth
