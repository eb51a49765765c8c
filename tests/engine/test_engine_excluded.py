"""Time that is excluded from steps automatically: validation, saving, compilation. Exact on a fake clock."""

import io
import json
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from engine_laws import Watched, check_laws, count, everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from autoprof import Phase, Summary
from autoprof.capture.hooks import backward
from autoprof.reports.summary_text import render_summary
from autoprof.testing import FakeClock

X = torch.ones(1, 2)


class Timed(nn.Module):
    """A layer whose forward takes 10 ns on the test's clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock, self.layer = clock, nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Any:
        self.clock.advance(10)
        return self.layer(x)


class Batches(Dataset):
    """Samples that take 3 ns each to load; in batches of one."""

    def __init__(self, clock: FakeClock, count: int, ns: int = 3) -> None:
        self.clock, self.count, self.ns = clock, count, ns

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        self.clock.advance(self.ns)
        return torch.ones(2)


class Program:
    """A training program on a fake clock: a step's forward takes 10 ns, its optimizer 5."""

    def __init__(self, step: str = "auto", *, model: Any = None, match: str = "layer", **config: Any) -> None:
        self.clock = FakeClock()
        self.model = (model or Timed)(self.clock)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.optimizer.register_step_pre_hook(lambda *_: self.clock.advance(5))
        config = everything(step=step, targets=[{"match": match}], **config)
        self.watched = Watched(self.model, clock=self.clock, config=config)
        self.manual = step == "manual"

    def train(self, batch: Tensor | None = None) -> None:
        """Do one step."""
        self.model.train()
        self.model(X if batch is None else batch).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.manual:
            self.watched.step()

    def validate(self, batches: Any = (None, None)) -> None:
        """Evaluate as people do, with metrics that take 100 ns after each batch."""
        self.model.eval()
        with torch.no_grad():
            for batch in batches:
                self.model(X if batch is None else batch)
                self.clock.advance(100)
        self.model.train()

    def end(self) -> Summary:
        """Close the session."""
        self.watched.session.close()
        for frame in self.watched.sink.frames:
            check_laws(frame)
        assert self.watched.sink.summary is not None
        return self.watched.sink.summary

    @property
    def lengths(self) -> list[int]:
        """The steps' lengths."""
        return [frame.duration_ns for frame in self.watched.sink.frames]


@pytest.fixture(params=["auto", "manual"])
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    """A program in each mode."""
    made = Program(request.param)
    yield made
    made.watched.session.close()
    assert not backward.BACKWARD.in_place


# Validation.


def test_validation_is_recognised_without_being_told(program: Program) -> None:
    """Neither the steps' number nor their length changes; what it took is said, and so how often."""
    for _ in range(2):
        program.train()
        program.train()
        program.validate()
    program.train()
    summary = program.end()
    assert program.lengths == [15] * 5
    assert [(one.name, one.calls, one.total_ns) for one in summary.stages] == [("validation", 2, 440)]
    assert {count(frame, Phase.FORWARD)["layer"] for frame in program.watched.sink.frames} == {1}
    assert "validation  85.4 %  440 ns      2  220 ns" in render_summary(summary)


def test_a_loader_that_was_seen_to_feed_validation_is_apart_from_its_first_fetch_on(program: Program) -> None:
    """At first its fetch is taken back when the forward shows what it was for; from then on it is known."""
    feeds, checks = Batches(program.clock, 2), Batches(program.clock, 2, ns=1000)
    for _ in range(3):
        for batch in DataLoader(feeds):
            program.train(batch)
        program.validate(DataLoader(checks))
    summary = program.end()
    assert program.lengths == [18] * 6
    assert summary.stages[0].calls == 3
    assert summary.stages[0].total_ns == 3 * 2 * (1000 + 110)
    assert [frame.phase_ns()[Phase.DATA] for frame in program.watched.sink.frames] == [3] * 6


def test_what_is_excluded_after_one_step_happens_once(program: Program) -> None:
    """A checkpoint of three files is written after one step; what comes before the first step is after none."""
    session = program.watched.session
    program.validate()
    for _ in range(3):
        program.train()
    for _ in range(2):
        for _ in range(3):
            with session.pause():
                program.clock.advance(10)
        program.train()
    excluded = {one.name: (one.calls, one.steps) for one in program.end().stages}
    assert excluded["pause"] == (6, 2)
    if "validation" in excluded:  # at once only where the model is in eval mode under no_grad
        assert excluded["validation"] == (1, 0)


@pytest.mark.parametrize("rollout", [True, False], ids=["before each round", "after each round"])
def test_forwards_before_the_first_step_show_that_a_round_begins_with_them(rollout: bool) -> None:
    """A rollout, in eval mode: the verdict calls it so. Validation after each round is validation."""
    program = Program()
    for _ in range(5):
        if rollout:
            program.validate()
        for _ in range(6):
            program.train()
        if not rollout:
            program.validate()
    summary = program.end()
    (excluded,) = summary.stages
    assert excluded.before_ns == (220 if rollout else 0)
    assert [one.name for one in summary.findings if one.rule == "excluded"] == [
        "rollout or validation" if rollout else "validation"
    ]


# Saving.


SAVE = torch.save


class Slow:
    """Something to save that takes 1000 ns to pickle."""

    clock: FakeClock

    def __reduce__(self) -> tuple[Any, ...]:
        self.clock.advance(1000)
        return dict, ()


def test_saving_a_checkpoint_is_charged_to_no_step(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.save`` in the middle of a step is apart, counted and said; the file is what it is without autoprof."""
    monkeypatch.setattr(Slow, "clock", program.clock, raising=False)
    files = [io.BytesIO(), io.BytesIO()]
    program.train()
    program.model(X).sum().backward()
    assert torch.save is not SAVE
    torch.save({"slow": Slow(), "model": program.model.state_dict()}, files[0])
    program.optimizer.step()
    if program.manual:
        program.watched.step()
    summary = program.end()
    assert program.lengths == [15, 15]
    assert [(one.name, one.calls, one.total_ns) for one in summary.stages] == [("torch.save", 1, 1000)]
    assert torch.save is SAVE
    torch.save({"slow": Slow(), "model": program.model.state_dict()}, files[1])
    assert len(files[0].getvalue()) == len(files[1].getvalue())


@pytest.mark.parametrize("module", [pickle, json, np], ids=["pickle.dump", "json.dump", "numpy.save"])
def test_other_ways_of_saving_are_charged_to_no_step(program: Program, module: Any) -> None:
    """A state that is written by a function of another library."""
    clock = program.clock

    class File(io.BytesIO if module is not json else io.StringIO):  # type: ignore[misc]
        """A file that takes 1000 ns to write."""

        def write(self, data: Any) -> int:
            clock.advance(1000 if not self.tell() else 0)
            return super().write(data)

    program.train()
    program.model(X).sum().backward()
    if module is np:
        np.save(File(), np.ones(3))
    else:
        module.dump([1, 2], File())
    program.optimizer.step()
    if program.manual:
        program.watched.step()
    summary = program.end()
    assert program.lengths == [15, 15]
    assert [(one.calls, one.total_ns) for one in summary.stages] == [(1, 1000)]


# Compilation.


def test_a_step_in_which_torch_compiled_is_kept_apart_and_said() -> None:
    """As a warm-up step is: its frame is written, but in no statistic."""
    program = Program("manual")
    compiled = torch.compile(program.model, backend="eager")
    program.train()
    compiled(X).sum().backward()
    program.train()
    program.train()
    summary = program.end()
    torch._dynamo.reset()
    assert [frame.warmup for frame in program.watched.sink.frames] == [False, True, False]
    assert (summary.steps, summary.warmup_steps) == (2, 1)
    assert summary.skipped["steps in which torch compiled, excluded as warm-up"] == 1


def test_a_named_stage_has_the_units_that_are_logged_inside(program: Program) -> None:
    """They are no samples of a step; the times of the stage and of the training make the wall time."""
    session = program.watched.session
    for _ in range(4):
        with session.stage("rollout"):
            program.clock.advance(40)
            session.log(samples=8)
            session.log(samples=2)
        program.train()
        session.log(samples=1)
    summary = program.end()
    rollout, training = sorted(summary.all_stages, key=lambda one: one.name)
    assert (rollout.name, rollout.calls, rollout.total_ns, rollout.chosen) == ("rollout", 4, 160, True)
    assert rollout.units == {"samples": 40.0}
    assert rollout.rate == ("samples", 40 / 160e-9)
    assert (training.name, training.calls) == ("training", summary.all_steps)
    assert rollout.total_ns + training.total_ns == summary.wall_ns
    assert [line for line in render_summary(summary) if line.startswith("rollout ")]


@pytest.mark.parametrize(("chosen", "severity"), [(True, "note"), (False, "critical")])
def test_a_stage_of_the_work_is_no_defect(program: Program, chosen: bool, severity: str) -> None:
    """A pause that takes as long is one."""
    session = program.watched.session
    for _ in range(12):
        with session.stage("rollout") if chosen else session.pause("rollout"):
            program.clock.advance(40)
        program.train()
    [found] = [one for one in program.end().findings if one.rule == "excluded"]
    assert (found.name, found.severity, found.gain_ns is None) == ("rollout", severity, chosen)
