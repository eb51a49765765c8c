"""The programs of ``docs/frameworks.md`` run, each where its framework is installed, and record their steps."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autoprof.base.storage.runs import read_run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "frameworks.md").read_text("utf-8")
BLOCKS = {
    (heading, number): block
    for heading, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
}
STEPS = {"transformers": 3, "Lightning": 8, "accelerate": 4, "DeepSpeed": 10}
PACKAGES = {
    "transformers": ("transformers", "accelerate"),  # its Trainer refuses to train without accelerate
    "Lightning": ("lightning",),
    "accelerate": ("accelerate",),
    "DeepSpeed": ("deepspeed",),
}


class Words(torch.utils.data.Dataset[Any]):
    """Sequences of tokens."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.arange(8), "labels": torch.arange(8)}


def names(framework: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the variables that the block of a framework takes as given."""
    model: nn.Module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    rows = torch.utils.data.TensorDataset(torch.ones(32, 4))
    if framework == "transformers":
        from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

        size = {"vocab_size": 8, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 1}
        arguments = TrainingArguments(str(folder / "out"), max_steps=3, use_cpu=True, report_to=[], save_strategy="no")
        model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
        return {"model": model, "arguments": arguments, "dataset": Words()}
    if framework == "Lightning":
        import lightning

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.net = model

            def training_step(self, batch: Any, index: int) -> torch.Tensor:
                loss: torch.Tensor = self.net(batch[0]).square().mean()
                return loss

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.1)

        return {"module": Module(), "loader": torch.utils.data.DataLoader(rows, batch_size=8)}
    if framework == "DeepSpeed":
        for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("MASTER_PORT", "0")  # the only rank listens on a port that the system chooses
        return {"model": model, "batches": [torch.ones(4, 4)] * 40}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"model": model, "optimizer": optimizer, "loader": torch.utils.data.DataLoader(rows, batch_size=2)}


def test_the_page_has_a_program_for_each_framework() -> None:
    """A section that is renamed or lost shows here."""
    assert {heading for heading, _ in BLOCKS} == {*STEPS}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("framework", "number"), list(BLOCKS))
def test_a_program_of_the_page_records_its_steps(
    framework: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs as it stands, and its folder holds as many steps as its optimizer made."""
    missing = [package for package in PACKAGES[framework] if not importlib.util.find_spec(package)]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    given = names(framework, tmp_path, monkeypatch)
    exec(compile(BLOCKS[framework, number], f"docs/frameworks.md, {framework}", "exec"), given)
    (folder,) = [path.parent for path in (tmp_path / "runs").rglob("summary.json")]
    summary = read_run(folder).summary
    assert summary is not None
    assert summary.all_steps == STEPS[framework]
