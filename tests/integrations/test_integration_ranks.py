"""Callbacks in programs of several processes: the ranks of a training share a folder, under ``autoprof run`` too."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from autoprof.frontends.launch.models import find_wrapper

ROOT = Path(__file__).resolve().parents[2]
DDP = """
import torch, lightning
from autoprof.integrations.lightning import AutoprofLightningCallback

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 4)), batch_size=2)
callback = AutoprofLightningCallback({"sinks": {"jsonl": {}}})
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", callbacks=[callback], default_root_dir=".", **quiet
)
module = Module()
trainer.fit(module, loader)
trainer.fit_loop.max_epochs = 3
trainer.fit(module, loader)
"""
RUN = """
import torch
from autoprof.integrations._training import Training

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = Training({"sinks": {"jsonl": {}}}, ())
training.begin(model, [optimizer])
for _ in range(7):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    training.end_step()
training.end()
"""


def run(program: str, folder: Path, *options: str) -> bool:
    """Run a program in a folder; it must end well. Return False if the port that it chose was taken meanwhile."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *options, "train.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode and "address already in use" in done.stderr.lower():
        return False
    assert done.returncode == 0, done.stderr
    return True


def test_the_ranks_that_lightning_starts_share_a_folder(tmp_path: Path) -> None:
    """The first process starts the second; each ``fit`` has a run with both ranks."""
    if not importlib.util.find_spec("lightning"):
        pytest.skip("needs lightning")
    # Lightning looks for a free port, and listens on it later.
    folder = next(folder for folder in (tmp_path / f"{attempt}" for attempt in range(5)) if run(DDP, folder))
    runs = sorted((folder / "runs").iterdir())
    assert len(runs) == 2
    assert runs[1].name == f"{runs[0].name}-2"
    for folder, steps in zip(runs, (8, 16), strict=True):
        assert {path.name for path in folder.glob("rank*")} == {"rank0", "rank1"}
        for summary in (folder / "summary.json", folder / "rank1" / "summary.json"):
            found = json.loads(summary.read_text("utf-8"))
            assert found["progress"]["total_steps"] == steps


def test_a_callback_under_autoprof_run_records_once(tmp_path: Path) -> None:
    """The command records no second run of the same training."""
    assert run(RUN, tmp_path, "-m", "autoprof", "run")
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_the_wrapper_of_several_ranks_is_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers gives its callbacks the model inside ``DistributedDataParallel``."""
    wrapper_class = type("DistributedDataParallel", (nn.Module,), {})
    model, wrapper = nn.Linear(2, 2), wrapper_class()
    wrapper.module = model
    assert find_wrapper(model) is model
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert find_wrapper(model) is wrapper
    assert find_wrapper(wrapper) is wrapper
