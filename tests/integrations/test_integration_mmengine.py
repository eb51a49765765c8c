"""The hook for mmengine: steps, length, losses and excluded time are those of the runner."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from framework_runs import ending, frames, times
from torch import Tensor, nn

if not importlib.util.find_spec("mmengine"):
    pytest.skip("the package mmengine is not installed", allow_module_level=True)

with warnings.catch_warnings():  # mmengine scripts functions when it is imported
    warnings.simplefilter("ignore")
    from mmengine.evaluator import BaseMetric
    from mmengine.hooks import Hook
    from mmengine.model import BaseModel
    from mmengine.optim import OptimWrapper, OptimWrapperDict
    from mmengine.runner import Runner

    from autoprof.integrations.mmengine import AutoprofHook

pytestmark = pytest.mark.filterwarnings("default")


class Rows(torch.utils.data.Dataset[tuple[Tensor]]):
    """Random rows."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor]:
        return (torch.full((4,), float(index)),)


class Regressor(BaseModel):
    """A model with one loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, rows: Tensor, mode: str = "tensor") -> Any:
        found = self.net(rows)
        return {"loss": found.square().mean()} if mode == "loss" else [found]


class Accuracy(BaseMetric):
    """A metric that is always one."""

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.append(1)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        return {"accuracy": 1.0}


class StopHook(Hook):
    """Raise an exception in the fifth iteration."""

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if runner.iter == 5:
            raise ValueError("no more")


def runner(folder: Path, hook: Any, *, by_epoch: bool = True, each: int = 1, **arguments: Any) -> Any:
    """Return a runner with ten batches in an epoch."""

    def loader(count: int) -> dict[str, Any]:
        return {
            "batch_size": 2,
            "num_workers": 0,
            "dataset": Rows(2 * count),
            "sampler": {"type": "DefaultSampler" if by_epoch else "InfiniteSampler", "shuffle": False},
            "collate_fn": {"type": "default_collate"},
        }

    validation = {"val_dataloader": loader(3), "val_cfg": {}, "val_evaluator": [Accuracy()]} if by_epoch else {}
    length = {"by_epoch": True, "max_epochs": 3} if by_epoch else {"by_epoch": False, "max_iters": 15}
    torch.manual_seed(0)
    given = {
        "model": Regressor(),
        "optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.001}, "accumulative_counts": each},
        "train_cfg": length,
        "default_hooks": {
            "checkpoint": {"type": "CheckpointHook", "interval": 1 if by_epoch else 5, "by_epoch": by_epoch}
        },
        "custom_hooks": [hook],
        **validation,
        **arguments,
    }
    return Runner(
        work_dir=str(folder / "work"),
        train_dataloader=loader(10),
        experiment_name=folder.name,
        log_level="ERROR",
        **given,
    )


def test_epochs_with_validation_and_checkpoints(config: Any, tmp_path: Path, optimizer_steps: list[int]) -> None:
    """An iteration is a step; each validation and each checkpoint is one interval."""
    hook = AutoprofHook(config)
    runner(tmp_path, hook).train()
    summary = hook.session.summary()
    assert summary.all_steps == len(optimizer_steps) == 30
    assert times(summary) == {"checkpoint saving": 3, "validation": 3}
    assert summary.progress is not None
    assert summary.progress.total_steps == 30
    assert summary.progress.epoch_steps == pytest.approx(10, rel=0.2)  # the end of an epoch is a fetch too
    steps = frames(hook.session.folder)
    assert all(one["lr"] == 0.001 and one["loss"] > 0 for one in steps)
    assert ending(hook.session.folder) == "closed"


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])
def test_iterations_of_one_optimizer_step_are_one_step(
    config: Any, tmp_path: Path, by_epoch: bool, optimizer_steps: list[int]
) -> None:
    """With ``accumulative_counts=4`` the last iterations of the run make a step too."""
    hook = AutoprofHook(config)
    runner(tmp_path, hook, by_epoch=by_epoch, each=4).train()
    summary = hook.session.summary()
    assert summary.all_steps == len(optimizer_steps) == (8 if by_epoch else 4)
    assert summary.progress is not None
    assert summary.progress.remaining_steps == 0


class Gan(BaseModel):
    """Two models with an optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, rows: Tensor) -> Tensor:
        judged: Tensor = self.critic(self.generator(rows))
        return judged

    def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Tensor]:
        losses = {}
        for name, sign in (("critic", -1), ("generator", 1)):
            losses[name] = sign * self(data[0]).mean()
            optim_wrapper[name].update_params(losses[name])
        return losses


def test_both_updates_of_a_gan_are_one_step(config: Any, tmp_path: Path, optimizer_steps: list[int]) -> None:
    """An ``OptimWrapperDict`` has no count of its own."""
    hook, model = AutoprofHook(config), Gan()
    wrappers = OptimWrapperDict(
        generator=OptimWrapper(torch.optim.SGD(model.generator.parameters(), lr=0.001)),
        critic=OptimWrapper(torch.optim.SGD(model.critic.parameters(), lr=0.001)),
    )
    run = runner(tmp_path, hook, by_epoch=False, model=model, optim_wrapper=wrappers)
    run.train()
    summary = hook.session.summary()
    assert summary.all_steps == len(optimizer_steps) / 2 == 15
    assert {"critic", "generator"} <= set(summary.scalars)


def test_a_training_that_ends_by_an_exception_is_closed(config: Any, tmp_path: Path) -> None:
    """The run says which exception it was."""
    hook = AutoprofHook(config)
    with pytest.raises(ValueError, match="no more"):
        runner(tmp_path, hook, custom_hooks=[hook, StopHook()]).train()
    assert ending(hook.session.folder) == "error: ValueError: no more"


def test_a_resumed_training_counts_its_own_steps(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 30 iterations that goes on after the first 20 has ten."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # the checkpoints of mmengine 0.10 need it
    runner(tmp_path, {"type": "IterTimerHook"}, train_cfg={"by_epoch": True, "max_epochs": 2}).train()
    hook = AutoprofHook(config)
    runner(tmp_path, hook, resume=True).train()
    summary = hook.session.summary()
    assert summary.progress is not None
    assert (summary.all_steps, summary.progress.total_steps) == (10, 10)
