"""The callback for transformers: steps, length, scalars and excluded time are those of the trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from attached import is_marked
from framework_runs import ending, frames, times
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate: the Trainer of transformers uses it")

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments  # noqa: E402

from autoprof.integrations._training import AGAIN  # noqa: E402
from autoprof.integrations.transformers import AutoprofCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
TOKENS = 8


class Words(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Sequences of random tokens."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        words = torch.randint(0, 50, (TOKENS,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


def gpt2() -> nn.Module:
    """Return a GPT-2 of two blocks with random weights."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_positions=TOKENS, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )


def trainer(folder: Path, callback: Any, *, model: nn.Module | None = None, **arguments: Any) -> Any:
    """Return a trainer of 48 sequences: 24 batches, of which 4 make an optimizer step."""
    given = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "logging_steps": 2,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        **arguments,
    }
    settings = TrainingArguments(str(folder / "out"), **given)
    callbacks = [] if callback is None else [callback]
    return Trainer(model or gpt2(), settings, train_dataset=Words(48), eval_dataset=Words(6), callbacks=callbacks)


def test_steps_are_those_of_the_optimizer(config: Any, tmp_path: Path, optimizer_steps: list[int]) -> None:
    """Four batches make a step; its samples, tokens and loss belong to it; the length is that of the trainer."""
    callback = AutoprofCallback(config)
    run = trainer(tmp_path, callback, max_steps=10, include_num_input_tokens_seen="all")
    run.train()
    assert callback.session is not None
    summary = callback.session.summary()
    assert summary.all_steps == run.state.global_step == len(optimizer_steps) == 10
    assert summary.micro_steps == 4
    assert summary.progress is not None
    assert (summary.progress.total_steps, summary.progress.remaining_steps) == (10, 0)
    steps = frames(callback.session.folder)
    assert [one["tokens"] for one in steps] == [8 * TOKENS] * 10
    logged = {one["step"]: one["loss"] for one in run.state.log_history if "loss" in one}
    assert {one["step"]: one["loss"] for one in steps if "loss" in one} == pytest.approx(logged, rel=1e-4)
    assert sorted(logged) == [2, 4, 6, 8, 10]
    assert all("lr" in one for one in steps if "loss" in one)
    assert ending(callback.session.folder) == "closed"


def test_evaluation_and_saving_are_excluded(config: Any, tmp_path: Path) -> None:
    """Each evaluation is one interval, each checkpoint one, and no forward of an evaluation is in a step."""
    callback = AutoprofCallback(config)
    trainer(
        tmp_path, callback, max_steps=12, eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=4
    ).train()
    summary = callback.session.summary()
    assert times(summary) == {"validation": 4, "checkpoint saving": 3}
    rows = {(row.name, row.phase.value): row.calls for row in summary.rows}
    assert rows["GPT2LMHeadModel", "forward"] == 12 * 4


def test_epochs_evaluations_and_the_best_checkpoint(config: Any, tmp_path: Path) -> None:
    """The length of a run of epochs is known; with the strategy ``best`` the evaluation decides whether it saves."""
    callback = AutoprofCallback(config)
    run = trainer(
        tmp_path,
        callback,
        num_train_epochs=3,
        eval_strategy="epoch",
        eval_on_start=True,
        save_strategy="best",
        metric_for_best_model="loss",
    )
    run.train()
    summary = callback.session.summary()
    assert summary.all_steps == run.state.global_step == 18
    assert summary.progress is not None
    assert summary.progress.total_steps == 18
    assert times(summary)["validation"] == 4
    assert {one.name for one in summary.stages} == {"validation", "checkpoint saving"}
    assert summary.stages[0].before_ns > 0


def test_a_resumed_training_counts_its_own_steps(config: Any, tmp_path: Path) -> None:
    """A training of 10 steps that goes on after step 6 has 4."""
    trainer(tmp_path, None, max_steps=6, save_strategy="steps", save_steps=6).train()
    callback = AutoprofCallback(config)
    trainer(tmp_path, callback, max_steps=10).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-6"))
    summary = callback.session.summary()
    assert summary.all_steps == 4
    assert summary.progress is not None
    assert (summary.progress.total_steps, summary.progress.remaining_steps) == (4, 0)


class Stop(TrainerCallback):
    """Raise an exception at the end of the fifth step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 5:
            raise ValueError("no more")


def test_an_exception_goes_on_and_the_next_training_closes_its_session(config: Any, tmp_path: Path) -> None:
    """The steps before it are recorded."""
    callback, model = AutoprofCallback(config), gpt2()
    run = trainer(tmp_path, callback, model=model, max_steps=10)
    run.add_callback(Stop())
    with pytest.raises(ValueError, match="no more"):
        run.train()
    first = callback.session
    run.remove_callback(Stop)
    run.train()
    assert ending(first.folder) == AGAIN
    assert first.summary().all_steps == 5
    assert not [module for module in model.modules() if is_marked(module)]


def test_results_are_the_same_to_the_last_bit(config: Any, tmp_path: Path) -> None:
    """Parameters after ten steps do not depend on the callback."""

    def parameters(callback: Any) -> list[Tensor]:
        model = gpt2()
        trainer(tmp_path, callback, model=model, max_steps=10, eval_strategy="steps", eval_steps=4).train()
        return [one.detach().clone() for one in model.parameters()]

    assert all(map(torch.equal, parameters(None), parameters(AutoprofCallback(config))))
