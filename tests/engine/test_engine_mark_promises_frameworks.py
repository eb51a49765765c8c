"""Wrappers of torch.distributed and of training frameworks train a recorded model to the bits of the bare one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from engine_laws import count
from mark_promises import ALL, as_bare, backwards, forwards, train_step, two_layers
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autoprof import Phase, StepFrame


def of_layers(frame: StepFrame) -> dict[str, int]:
    """Return the forward calls of the three layers, whatever wraps them."""
    return {name: forwards(frame)[name] for name in "012"}


LAYERS = {"0": 1, "1": 1, "2": 1}

# One rank.


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """Be the only rank of a process group on the host."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"find_unused_parameters": True}], ids=str)
@pytest.mark.filterwarnings("ignore:find_unused_parameters=True")
def test_a_model_in_ddp_trains_as_without_a_session(options: dict[str, Any]) -> None:
    """The wrapper is instrumented; its layers are recorded, forward and backward."""
    for frame in as_bare(lambda: DistributedDataParallel(two_layers(), **options), train_step, steps=3):
        assert of_layers(frame) == LAYERS
        assert {name: backwards(frame)[name] for name in "012"} == LAYERS


# Frameworks that may be there.


def test_a_model_prepared_by_accelerate_trains_as_without_a_session() -> None:
    """``Accelerator.prepare`` replaces forward where precision is mixed."""
    accelerate = pytest.importorskip("accelerate", reason="the package accelerate is not installed")

    def make() -> nn.Module:
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
        prepared: nn.Module = accelerator.prepare(two_layers())
        return prepared

    for frame in as_bare(make, train_step, steps=3):
        assert forwards(frame) == backwards(frame) == ALL


def test_hooks_of_accelerate_run_as_without_a_session() -> None:
    """``add_hook_to_module`` replaces forward on the instance; ``remove_hook_from_module`` puts it back."""
    hooks = pytest.importorskip("accelerate.hooks", reason="the package accelerate is not installed")

    class Doubles(hooks.ModelHook):  # type: ignore[name-defined, misc]
        def post_forward(self, module: nn.Module, output: Any) -> Any:
            return output * 2

    def work(model: Any) -> Any:
        hooks.add_hook_to_module(model[0], Doubles())
        hooked = train_step(model)
        hooks.remove_hook_from_module(model[0])
        return hooked, train_step(model)

    for frame in as_bare(two_layers, work):
        assert forwards(frame) == backwards(frame) == dict.fromkeys(ALL, 2)


def adapted() -> Any:
    """Return a model with adapters on its linear layers."""
    peft = pytest.importorskip("peft", reason="the package peft is not installed")
    return peft.get_peft_model(two_layers(), peft.LoraConfig(target_modules=["0", "2"], r=2, init_lora_weights=False))


@pytest.mark.filterwarnings("ignore")
def test_adapters_added_and_removed_during_the_session_are_the_programs() -> None:
    """They replace layers that are recorded."""
    peft = pytest.importorskip("peft", reason="the package peft is not installed")

    def work(model: nn.Module) -> Any:
        torch.manual_seed(1)
        config = peft.LoraConfig(target_modules=["0"], r=2, init_lora_weights=False)
        adapted = peft.get_peft_model(model, config)
        output = train_step(adapted)
        adapted.unload()
        model.zero_grad()
        for parameter in model.parameters():
            parameter.requires_grad_(True)
        return output, train_step(model)

    for frame in as_bare(two_layers, work):
        assert forwards(frame)["Sequential"] == forwards(frame)["2"] == 2


def gpt2(reentrant: bool | None = None) -> Any:
    """Return a GPT-2 of two tiny layers, checkpointed if asked for."""
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=8, vocab_size=11, n_positions=8, attn_pdrop=0.1, resid_pdrop=0.1
    )
    model = transformers.GPT2LMHeadModel(config).train()
    if reentrant is not None:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    return model


def train_tokens(model: Any) -> Tensor:
    """Train a step on a few tokens; return the loss."""
    tokens = torch.arange(10).reshape(2, 5)
    loss: Tensor = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    return loss.detach()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reentrant", [None, False, True])
def test_a_transformer_with_its_own_checkpointing_trains_as_without_a_session(reentrant: bool | None) -> None:
    """``GradientCheckpointingLayer``: what is recomputed is recorded as such."""
    for frame in as_bare(lambda: gpt2(reentrant), train_tokens):
        for block in ("transformer/h/0", "transformer/h/1"):
            assert forwards(frame)[block] == 1
            assert forwards(frame)[f"{block}/mlp"] == 1
            assert backwards(frame)[f"{block}/mlp"] == 1
            assert count(frame, Phase.RECOMPUTE)[f"{block}/mlp"] == (reentrant is not None)
