"""The tracker for accelerate: steps are those of the optimizer, the length is that of the script's configuration."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import optimizer_hooks
from framework_runs import ending, frames, times
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("accelerate", reason="the package accelerate is not installed")

from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState

from autoprof.integrations.accelerate import AutoprofTracker

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """Forget accelerate's state, which belongs to the process."""
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def train(tracker: AutoprofTracker, *, early: bool = False, folder: Path | None = None, **config: Any) -> None:
    """Train for two epochs of twelve batches, of which four make an optimizer step; validate after each."""
    accelerator = Accelerator(log_with=[tracker], gradient_accumulation_steps=4, cpu=True)
    if early:
        accelerator.init_trackers("project", config=config)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader: Any = DataLoader(TensorDataset(torch.ones(24, 4)), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if not early:
        accelerator.init_trackers("project", config=config)
    for epoch in range(2):
        model.train()
        for (batch,) in loader:
            with accelerator.accumulate(model):
                loss = model(batch).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                accelerator.log({"train_loss": loss.item(), "note": "text"})
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, 4))
        if folder is not None:
            accelerator.save_state(str(folder / f"state{epoch}"))
    accelerator.end_training()


def test_steps_are_those_of_the_optimizer(config: Any, tmp_path: Path, optimizer_steps: list[int]) -> None:
    """Four batches make a step; validation and ``save_state`` are excluded; the numbers logged belong to their step."""
    tracker = AutoprofTracker(config)
    train(tracker, folder=tmp_path, max_train_steps=6)
    assert tracker.session is not None
    summary = tracker.session.summary()
    assert summary.all_steps == len(optimizer_steps) == 6
    assert summary.micro_steps == 4
    assert summary.progress is not None
    assert (summary.progress.total_steps, summary.progress.remaining_steps) == (6, 0)
    assert times(summary) == {"validation": 2, "safetensors": 2, "torch.save": 4}
    assert all("loss" in one for one in frames(tracker.session.folder))
    assert ending(tracker.session.folder) == "closed"


def test_a_tracker_that_starts_before_prepare_misses_the_first_step(config: Any) -> None:
    """The session opens once the accelerator has a model, after its first optimizer step."""
    tracker = AutoprofTracker(config, total_steps=6)
    train(tracker, early=True)
    assert tracker.session is not None
    summary = tracker.session.summary()
    assert summary.progress is not None
    assert (summary.all_steps, summary.progress.total_steps) == (5, 5)


def test_a_tracker_of_a_later_rank_opens_a_session_too(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate calls the trackers of the first rank only: the others open with the first optimizer step."""
    monkeypatch.setattr("autoprof.integrations.accelerate.rank", lambda: 1)
    tracker = AutoprofTracker(config)
    monkeypatch.setattr(Accelerator, "init_trackers", lambda self, project, config: None)
    train(tracker)
    assert tracker.session is not None
    tracker.finish()
    assert tracker.session.summary().all_steps == 5


def test_a_tracker_of_an_accelerator_that_never_trains_leaves_nothing(config: Any) -> None:
    """``end_training`` removes the hook that waits for the first step."""
    hooks = optimizer_hooks()
    tracker = AutoprofTracker(config)
    accelerator = Accelerator(log_with=[tracker], cpu=True)
    accelerator.init_trackers("project")
    accelerator.end_training()
    assert tracker.session is None
    assert optimizer_hooks() == hooks
