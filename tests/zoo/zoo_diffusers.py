"""Models of diffusers, small: U-nets, autoencoders, transformers, a control net."""

from collections.abc import Callable
from typing import Any, Final

import torch
import zoo_torchvision_ops
from zoo_case import Arguments, Case, Subject, normal

zoo_torchvision_ops.provide()  # diffusers imports torchvision

import diffusers  # noqa: E402

Draws = dict[str, Callable[[], Any]]
UNET: Final[dict[str, Any]] = {
    "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4, "attention_head_dim": 4,
}  # fmt: skip
CODER: Final[dict[str, Any]] = {
    "block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1,
    "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
}  # fmt: skip
TRANSFORMER: Final[dict[str, Any]] = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2}
PATCHES: Final[dict[str, Any]] = {**TRANSFORMER, "in_channels": 4, "sample_size": 8, "patch_size": 2}


def _step() -> torch.Tensor:
    return torch.tensor([3, 7])


IMAGE: Final = normal(2, 4, 8, 8)
TEXT: Final = {"encoder_hidden_states": normal(2, 5, 12)}
POOLED: Final = {**TEXT, "pooled_projections": normal(2, 10)}


def _crossing(dimensions: int) -> dict[str, Any]:
    """Return the options of a U-net with attention to a text."""
    block = f"Block{dimensions}D"
    down, up = (f"CrossAttnDown{block}", f"Down{block}"), (f"Up{block}", f"CrossAttnUp{block}")
    return {**UNET, "sample_size": 8, "cross_attention_dim": 12, "down_block_types": down, "up_block_types": up}


MODELS: Final[dict[str, tuple[dict[str, Any], tuple[Callable[[], Any], ...], Draws]]] = {
    "UNet2DModel": (
        {
            **UNET, "sample_size": 8, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        (normal(2, 3, 8, 8), _step),
        {},
    ),
    "UNet2DConditionModel": (_crossing(2), (IMAGE, _step), TEXT),
    "UNet2DConditionModel, checkpointed": (_crossing(2), (IMAGE, _step), TEXT),
    "UNet3DConditionModel": (_crossing(3), (normal(2, 4, 2, 8, 8), _step), TEXT),
    "ControlNetModel": (
        {
            **UNET, "cross_attention_dim": 12, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "conditioning_embedding_out_channels": (4, 8),
        },
        (IMAGE, _step),
        {**TEXT, "controlnet_cond": normal(2, 3, 16, 16)},
    ),
    "AutoencoderKL": (CODER, (normal(2, 3, 16, 16),), {}),
    "AutoencoderTiny": (
        {
            "encoder_block_out_channels": (8, 8, 8), "decoder_block_out_channels": (8, 8, 8),
            "num_encoder_blocks": (1, 1, 1), "num_decoder_blocks": (1, 1, 1),
        },
        (normal(2, 3, 16, 16),),
        {},
    ),
    "VQModel": ({**CODER, "num_vq_embeddings": 16}, (normal(2, 3, 16, 16),), {}),
    "DiTTransformer2DModel": (
        {**PATCHES, "out_channels": 4, "norm_num_groups": 4, "num_embeds_ada_norm": 8},
        (IMAGE, _step),
        {"class_labels": lambda: torch.tensor([1, 2])},
    ),
    "PixArtTransformer2DModel": (
        {
            **PATCHES, "out_channels": 8, "cross_attention_dim": 16, "caption_channels": 12, "norm_num_groups": 4,
            "use_additional_conditions": False,
        },
        (IMAGE,),
        {**TEXT, "timestep": _step, "added_cond_kwargs": lambda: {"resolution": None, "aspect_ratio": None}},
    ),
    "SD3Transformer2DModel": (
        {
            **PATCHES, "out_channels": 4, "joint_attention_dim": 12, "caption_projection_dim": 16,
            "pooled_projection_dim": 10, "pos_embed_max_size": 8,
        },
        (IMAGE,),
        {**POOLED, "timestep": _step},
    ),
    "FluxTransformer2DModel": (
        {
            **TRANSFORMER, "patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1,
            "joint_attention_dim": 12, "pooled_projection_dim": 10, "axes_dims_rope": (2, 2, 4),
        },
        (normal(2, 16, 4),),
        {
            **POOLED, "timestep": lambda: _step() / 10, "img_ids": lambda: torch.zeros(16, 3),
            "txt_ids": lambda: torch.zeros(5, 3),
        },
    ),
    "Transformer2DModel": (
        {**TRANSFORMER, "in_channels": 16, "cross_attention_dim": 12, "norm_num_groups": 4},
        (normal(2, 16, 4, 4),),
        TEXT,
    ),
    "PriorTransformer": (
        {**TRANSFORMER, "embedding_dim": 10, "num_embeddings": 5, "additional_embeddings": 4},
        (normal(2, 10), _step),
        {"proj_embedding": normal(2, 10), "encoder_hidden_states": normal(2, 5, 10)},
    ),
}  # fmt: skip
"""Name → what makes the model small, what draws its arguments, and those by keyword."""


def _build(name: str) -> Subject:
    options, positional, keywords = MODELS[name]
    kind, _, checkpointed = name.partition(", ")
    model = getattr(diffusers, kind)(**options)
    if checkpointed:
        model.enable_gradient_checkpointing()

    def draw() -> Arguments:
        return tuple(make() for make in positional), {key: make() for key, make in keywords.items()}

    return Subject(model, draw)


CASES: Final = [Case("diffusers", name, lambda name=name: _build(name)) for name in MODELS]
