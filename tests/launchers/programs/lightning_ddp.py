"""A program of Lightning, whose first process starts the second."""

import sys
import warnings
from typing import Any

import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from workload import STEPS, Model

warnings.simplefilter("ignore")


class Module(lightning.LightningModule):
    """The model of the workload."""

    def setup(self, stage: str) -> None:
        self.net = Model(self.global_rank)

    def training_step(self, batch: Any, index: int) -> Any:
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    torch.set_num_threads(1)
    callbacks = []
    if "--unchanged" not in sys.argv:
        from autoprof.integrations.lightning import AutoprofLightningCallback

        callbacks.append(AutoprofLightningCallback())
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", callbacks=callbacks, **quiet
    )
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(STEPS * 32, 64)), batch_size=16))
