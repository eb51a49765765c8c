"""``VRTWithSpike``: its shape, what its YAML relies on, and that checkpointing changes nothing but time and memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from examples.demo.data import Clip
from examples.demo.losses import deblurring_loss
from examples.demo.model import VRTWithSpike
from examples.demo.spike import SpikeEncoder3D, SpikeTemporalSA

Build = Callable[..., VRTWithSpike]


def outputs_of(model: nn.Module, batch: Clip) -> dict[str, list[object]]:
    """Run one forward and return what each module returned, call by call."""
    seen: dict[str, list[object]] = {}
    hooks = [
        module.register_forward_hook(lambda _m, _in, out, name=name: seen.setdefault(name, []).append(out))
        for name, module in model.named_modules()
    ]
    with torch.no_grad():
        model(batch.rgb, batch.spike)
    for hook in hooks:
        hook.remove()
    return seen


def loss_and_gradients(model: VRTWithSpike, batch: Clip) -> tuple[Tensor, dict[str, Tensor]]:
    """Run one forward and backward."""
    loss = deblurring_loss(model(batch.rgb, batch.spike), batch.sharp)
    loss.backward()
    return loss, {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def test_stage8_is_a_list_that_is_never_called(tiny_model: Build, batch: Clip) -> None:
    """Its layers run, one by one; the ``ModuleList`` itself does not."""
    model = tiny_model()
    seen = outputs_of(model, batch)
    assert isinstance(model.stage8, nn.ModuleList)
    assert "stage8" not in seen
    assert all(f"stage8.{i}" in seen for i in range(len(model.stage8)))


def test_the_spike_branch_has_four_scales(tiny_model: Build, batch: Clip) -> None:
    """Encoder and temporal attention give features at 1, 1/2, 1/4 and 1/8 of the resolution."""
    model = tiny_model()
    seen = outputs_of(model, batch)
    assert isinstance(model.spike_encoder, SpikeEncoder3D)
    assert isinstance(model.spike_attention, SpikeTemporalSA)
    assert [seen[f"spike_encoder.scales.{i}"][0].shape for i in range(4)] == [  # type: ignore[attr-defined]
        (2, 8, 2, side, side) for side in (16, 8, 4, 2)
    ]
    assert [seen[f"spike_attention.scales.{i}"][0].shape for i in range(4)] == [  # type: ignore[attr-defined]
        (2, 2, side, side, 8) for side in (16, 8, 4, 2)
    ]


def test_every_parameter_gets_a_gradient(tiny_model: Build, batch: Clip) -> None:
    """No weight is idle: a profiler sees the backward of every module."""
    model = tiny_model()
    _, gradients = loss_and_gradients(model, batch)
    assert gradients.keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("ffn", [False, True])
def test_checkpointing_changes_no_bit(tiny_model: Build, batch: Clip, attention: bool, ffn: bool) -> None:
    """Loss and gradients with checkpointing of attention, FFN or both equal those without it exactly."""
    loss, gradients = loss_and_gradients(tiny_model(), batch)
    model = tiny_model(use_checkpoint_attn=attention, use_checkpoint_ffn=ffn)
    same, recomputed = loss_and_gradients(model, batch)
    assert torch.equal(loss, same)
    assert all(torch.equal(gradients[name], recomputed[name]) for name in gradients)
