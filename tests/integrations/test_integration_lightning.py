"""The callback for Lightning: steps, length, loss and excluded time are those of the trainer."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from framework_runs import ending, frames, times
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

INSTALLED = [name for name in ("lightning", "pytorch_lightning") if importlib.util.find_spec(name)]
if not INSTALLED:
    pytest.skip("needs lightning: or pytorch_lightning", allow_module_level=True)
with warnings.catch_warnings():  # older versions use deprecated functions when they are imported
    warnings.simplefilter("ignore")
    PACKAGES = {name: importlib.import_module(name) for name in INSTALLED}

    from autoprof.integrations.lightning import AutoprofLightningCallback

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(params=INSTALLED)
def lightning(request: pytest.FixtureRequest) -> Any:
    """Return each of the two packages that is installed."""
    return PACKAGES[request.param]


def batches(count: int) -> DataLoader[Any]:
    """Return a loader of batches of two samples."""
    return DataLoader(TensorDataset(torch.ones(2 * count, 4)), batch_size=2)


def classifier(lightning: Any, error: BaseException | None = None) -> Any:
    """Return a module that is trained by automatic optimization."""

    class Classifier(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            if error is not None and index == 5:
                raise error
            return self.net(batch[0]).square().mean()

        def validation_step(self, batch: list[Tensor], index: int) -> None:
            self.log("val_loss", self.net(batch[0]).square().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Classifier()


def gan(lightning: Any) -> Any:
    """Return two models with an optimizer each, stepped by hand."""

    class Gan(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)

        def training_step(self, batch: list[Tensor], index: int) -> None:
            for optimizer, loss in zip(self.optimizers(), (1, -1), strict=True):
                optimizer.zero_grad()
                self.manual_backward(loss * self.critic(self.generator(batch[0])).mean())
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(one.parameters(), lr=0.1) for one in (self.generator, self.critic)], []

    return Gan()


def trainer(lightning: Any, folder: Path, *callbacks: Any, **arguments: Any) -> Any:
    """Return a trainer that writes nothing but checkpoints."""
    given = {
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "default_root_dir": folder,
        **arguments,
    }
    return lightning.Trainer(callbacks=list(callbacks), **given)


def test_a_fit_with_validation_and_checkpoints(lightning: Any, config: Any, tmp_path: Path) -> None:
    """A batch is a step; validations and checkpoints are excluded, the sanity check is no part of the run."""
    callback = AutoprofLightningCallback(config)
    run = trainer(lightning, tmp_path, callback, max_epochs=3, enable_checkpointing=True)
    run.fit(classifier(lightning), batches(6), batches(4))
    summary = callback.session.summary()
    assert summary.all_steps == run.global_step == 18
    assert summary.progress is not None
    assert summary.progress.total_steps == 18
    assert times(summary)["validation"] == times(summary)["torch.save"] == 3
    steps = frames(callback.session.folder)
    assert all(one["lr"] == 0.1 and one["loss"] >= 0 for one in steps)
    assert [one["epoch"] for one in steps] == [0] * 6 + [1] * 6 + [2] * 6
    assert {(row.name, row.phase.value): row.calls for row in summary.rows}["net", "forward"] == 18
    assert ending(callback.session.folder) == "closed"


def test_batches_of_one_optimizer_step_are_one_step(lightning: Any, config: Any, tmp_path: Path) -> None:
    """With ``accumulate_grad_batches=4`` an epoch of six batches has two steps: the last batches make one too."""
    callback = AutoprofLightningCallback(config)
    run = trainer(lightning, tmp_path, callback, max_epochs=3, accumulate_grad_batches=4)
    run.fit(classifier(lightning), batches(6))
    summary = callback.session.summary()
    assert summary.all_steps == run.global_step == 6
    assert summary.progress is not None
    assert summary.progress.total_steps == 6


@pytest.mark.parametrize(("limit", "steps"), [({"max_epochs": 2}, 12), ({"max_steps": 10, "max_epochs": -1}, 5)])
def test_both_updates_of_a_gan_are_one_step(
    lightning: Any, config: Any, tmp_path: Path, limit: dict[str, int], steps: int
) -> None:
    """With manual optimization a batch is a step, and the length of the run is unknown."""
    callback = AutoprofLightningCallback(config)
    run = trainer(lightning, tmp_path, callback, **limit)
    run.fit(gan(lightning), batches(6))
    summary = callback.session.summary()
    assert run.global_step == 2 * steps
    assert summary.all_steps == steps
    assert summary.progress is None or summary.progress.total_steps is None


@pytest.mark.parametrize("error", [ValueError("no more"), KeyboardInterrupt()], ids=["exception", "Ctrl-C"])
def test_a_fit_that_ends_by_an_exception_is_closed(
    lightning: Any, config: Any, tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run says which exception it was; Lightning ends the program after Ctrl-C."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    callback = AutoprofLightningCallback(config)
    with pytest.raises((ValueError, SystemExit)):
        trainer(lightning, tmp_path, callback, max_epochs=1).fit(classifier(lightning, error), batches(6))
    assert ending(callback.session.folder) == f"error: {type(error).__name__}: {error}"
    assert callback.session.summary().all_steps == 5


def test_a_resumed_fit_counts_its_own_steps(lightning: Any, config: Any, tmp_path: Path) -> None:
    """A run of 18 steps that goes on after step 12 has six."""
    first = trainer(lightning, tmp_path, max_epochs=2)
    first.fit(classifier(lightning), batches(6))
    first.save_checkpoint(tmp_path / "two.ckpt")
    callback = AutoprofLightningCallback(config)
    trainer(lightning, tmp_path, callback, max_epochs=3).fit(
        classifier(lightning), batches(6), ckpt_path=tmp_path / "two.ckpt", weights_only=False
    )
    summary = callback.session.summary()
    assert summary.progress is not None
    assert (summary.all_steps, summary.progress.total_steps) == (6, 6)
