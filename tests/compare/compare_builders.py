"""Saved runs made by hand: of numbers that a test draws, and of a real model on a clock that a test holds."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from autoprof.base.frame import Phase, Span, StepFrame
from autoprof.base.storage.runs import RunFolder
from autoprof.testing import FakeClock, make_frame, open_session
from tests.saved_records import write_records

MS = 1_000_000
Columns = Mapping[tuple[str, str], Sequence[float] | np.ndarray[Any, Any]]
"""Milliseconds of each step by name and phase; NaN where a row is not in a step."""


def noise(steps: int, seed: int, *, spread: float = 0.02, memory: float = 0.0) -> np.ndarray[Any, Any]:
    """Draw factors around 1, each step like the one before it as ``memory`` says (a first-order autoregression)."""
    drawn = np.random.default_rng(seed).standard_normal(steps)
    level = np.empty(steps)
    level[0] = drawn[0]
    for step in range(1, steps):
        level[step] = memory * level[step - 1] + np.sqrt(1 - memory**2) * drawn[step]
    return np.exp(spread * level)


def save(
    output: Path,
    columns: Columns,
    *,
    rest_ms: float = 1.0,
    rank: int = 0,
    name: str | None = None,
    world_size: int = 1,
    fqns: Mapping[str, str] | None = None,
    change: Callable[[int, dict[str, Any]], dict[str, Any]] | None = None,
    ended: str | None = "closed",
    **about: Any,
) -> Path:
    """Write a run whose steps have these rows one after another, and ``rest_ms`` of nothing; return its folder."""
    folder = RunFolder.create(output, rank=rank, world_size=world_size, name=name)
    write_records(folder.rank_path, _frames(columns, rest_ms, fqns or {}, change))
    for key, value in about.items():
        folder.note(key, value)
    if ended is not None:
        folder.finish(ended)
    return folder.path


def _frames(
    columns: Columns,
    rest_ms: float,
    fqns: Mapping[str, str],
    change: Callable[[int, dict[str, Any]], dict[str, Any]] | None,
) -> Iterable[StepFrame]:
    count = len(next(iter(columns.values())))
    for step in range(count):
        spans, at = [], 0
        for (name, phase), column in columns.items():
            if np.isnan(column[step]):
                continue
            length = round(column[step] * MS)
            spans.append(Span(name, fqns.get(name), Phase(phase), None, at, length))
            at += length
        fields: dict[str, Any] = {"step": step + 1, "duration_ns": at + round(rest_ms * MS)}
        yield make_frame(spans, **(change(step, fields) if change else fields))


def on_device(column: Sequence[float], *, host_ms: float) -> Callable[[int, dict[str, Any]], dict[str, Any]]:
    """Give each step a device's duration and the host a length of its own."""

    def change(step: int, fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "device_duration_ns": round(column[step] * MS), "duration_ns": round(host_ms * MS)}

    return change


class Part(nn.Module):
    """A layer that is called ``work`` times; each call takes ``cost_ns`` of the test's clock, its backward too."""

    def __init__(self, clock: FakeClock, draw: Callable[[], float], cost_ns: int, work: int = 1) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.work, self._spend = work, lambda: clock.advance(round(cost_ns * draw()))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.work):
            x = self.layer(x)
            self._spend()
            x.register_hook(lambda _: self._spend())  # inside the module: the hooks of its output come before it
            x = torch.tanh(x)
        return x


def train(output: Path, *, seed: int, work: int = 1, steps: int = 80, spread: float = 0.02, name: str = "Net") -> Path:
    """Train a real model of three parts, the second of which does ``work`` times its work; return the run's folder."""
    torch.manual_seed(0)
    clock, generator = FakeClock(tick_ns=500), np.random.default_rng(seed)

    def draw() -> float:
        return float(np.exp(spread * generator.standard_normal()))

    parts = {
        "encoder": Part(clock, draw, 3 * MS),
        "mixer": Part(clock, draw, 2 * MS, work),
        "head": Part(clock, draw, MS),
    }
    model = nn.Sequential()
    for key, part in parts.items():
        model.add_module(key, part)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    config = {
        "targets": [{"match": "(encoder|mixer|head)", "name": rf"{name}/\1"}],
        "sample": {"warmup": 3, "budget": None},
        "output": str(output),
        "sinks": {"jsonl": {}},
    }
    with open_session(model, config, clock=clock, optimizer=optimizer) as session:
        for _ in range(steps):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.log(samples=2)
            session.step()
        folder = session.folder
    assert folder is not None
    return folder


def kill(folder: Path, *, steps: int) -> Path:
    """Leave of a run what ``kill -9`` leaves: some records, the last one cut, no summary, no end."""
    records = folder / "rank0" / "steps.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:steps]) + lines[steps][: len(lines[steps]) // 2])
    (folder / "summary.json").unlink()
    info = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps({**info, "end": None, "ended": None}), encoding="utf-8")
    return folder
