"""Models of diffusers, small: U-nets, autoencoders, transformers, a control net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import zoo_torchvision_ops
from torch import nn
from zoo_case import Arguments, Case, Subject, total

zoo_torchvision_ops.provide()  # diffusers imports torchvision

import diffusers  # noqa: E402


def _step() -> torch.Tensor:
    return torch.tensor([3, 7])


def _noisy(*shape: int, **more: Callable[[], Any]) -> Callable[[], Arguments]:
    def draw() -> Arguments:
        return (torch.randn(shape), _step()), {name: make() for name, make in more.items()}

    return draw


def _image(*shape: int) -> Callable[[], Arguments]:
    return lambda: ((torch.randn(shape),), {})


def _text(length: int, wide: int) -> Callable[[], Any]:
    return lambda: torch.randn(2, length, wide)


def _unet2d() -> Subject:
    model = diffusers.UNet2DModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return Subject(model, _noisy(2, 3, 8, 8))


def _conditional(**more: Any) -> nn.Module:
    return diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
        cross_attention_dim=12, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **more,
    )  # fmt: skip


def _unet_conditional(checkpointing: bool) -> Subject:
    model = _conditional()
    if checkpointing:
        model.enable_gradient_checkpointing()
    return Subject(model, _noisy(2, 4, 8, 8, encoder_hidden_states=_text(5, 12)))


def _unet3d() -> Subject:
    model = diffusers.UNet3DConditionModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
        cross_attention_dim=12, down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
    )  # fmt: skip
    return Subject(model, _noisy(2, 4, 2, 8, 8, encoder_hidden_states=_text(5, 12)))


def _control() -> Subject:
    model = diffusers.ControlNetModel(
        block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4, cross_attention_dim=12,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), conditioning_embedding_out_channels=(4, 8),
    )  # fmt: skip
    draw = _noisy(2, 4, 8, 8, encoder_hidden_states=_text(5, 12), controlnet_cond=lambda: torch.randn(2, 3, 16, 16))
    return Subject(model, draw)


def _autoencoder(kind: str) -> Subject:
    small: dict[str, Any] = {
        "block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1,
        "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
    }  # fmt: skip
    if kind == "vq":
        model: nn.Module = diffusers.VQModel(**small, num_vq_embeddings=16)
    elif kind == "tiny":
        model = diffusers.AutoencoderTiny(
            encoder_block_out_channels=(8, 8, 8), decoder_block_out_channels=(8, 8, 8), num_encoder_blocks=(1, 1, 1),
            num_decoder_blocks=(1, 1, 1),
        )  # fmt: skip
    else:
        model = diffusers.AutoencoderKL(**small)
    return Subject(model, _image(2, 3, 16, 16))


def _dit() -> Subject:
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8,
        patch_size=2, norm_num_groups=4, num_embeds_ada_norm=8,
    )  # fmt: skip
    return Subject(model, _noisy(2, 4, 8, 8, class_labels=lambda: torch.tensor([1, 2])))


def _pixart() -> Subject:
    model = diffusers.PixArtTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2, sample_size=8,
        patch_size=2, cross_attention_dim=16, caption_channels=12, norm_num_groups=4, use_additional_conditions=False,
    )  # fmt: skip

    def draw() -> Arguments:
        return (torch.randn(2, 4, 8, 8),), {
            "encoder_hidden_states": torch.randn(2, 5, 12), "timestep": _step(),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        }  # fmt: skip

    return Subject(model, draw)


def _sd3() -> Subject:
    model = diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=12, caption_projection_dim=16, pooled_projection_dim=10,
        pos_embed_max_size=8,
    )  # fmt: skip

    def draw() -> Arguments:
        return (torch.randn(2, 4, 8, 8),), {
            "encoder_hidden_states": torch.randn(2, 5, 12), "pooled_projections": torch.randn(2, 10),
            "timestep": _step(),
        }  # fmt: skip

    return Subject(model, draw)


def _flux() -> Subject:
    model = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=12, pooled_projection_dim=10, axes_dims_rope=(2, 2, 4),
    )  # fmt: skip

    def draw() -> Arguments:
        return (torch.randn(2, 16, 4),), {
            "encoder_hidden_states": torch.randn(2, 5, 12), "pooled_projections": torch.randn(2, 10),
            "timestep": _step() / 10, "img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(5, 3),
        }  # fmt: skip

    return Subject(model, draw)


def _transformer2d() -> Subject:
    model = diffusers.Transformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=16,
        num_layers=2,
        cross_attention_dim=12,
        norm_num_groups=4,
    )

    def draw() -> Arguments:
        return (torch.randn(2, 16, 4, 4),), {"encoder_hidden_states": torch.randn(2, 5, 12)}

    return Subject(model, draw)


def _prior() -> Subject:
    model = diffusers.PriorTransformer(
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=2,
        embedding_dim=10,
        num_embeddings=5,
        additional_embeddings=4,
    )

    def draw() -> Arguments:
        return (torch.randn(2, 10), _step()), {
            "proj_embedding": torch.randn(2, 10), "encoder_hidden_states": torch.randn(2, 5, 10),
        }  # fmt: skip

    return Subject(model, draw, total)


def _case(name: str, build: Callable[[], Subject]) -> Case:
    return Case("diffusers", name, build)


CASES: Final = [
    _case("UNet2DModel", _unet2d),
    _case("UNet2DConditionModel", lambda: _unet_conditional(False)),
    _case("UNet2DConditionModel, checkpointed", lambda: _unet_conditional(True)),
    _case("UNet3DConditionModel", _unet3d),
    _case("ControlNetModel", _control),
    _case("AutoencoderKL", lambda: _autoencoder("kl")),
    _case("AutoencoderTiny", lambda: _autoencoder("tiny")),
    _case("VQModel", lambda: _autoencoder("vq")),
    _case("DiTTransformer2DModel", _dit),
    _case("PixArtTransformer2DModel", _pixart),
    _case("SD3Transformer2DModel", _sd3),
    _case("FluxTransformer2DModel", _flux),
    _case("Transformer2DModel", _transformer2d),
    _case("PriorTransformer", _prior),
]
