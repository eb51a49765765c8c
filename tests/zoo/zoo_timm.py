"""Models of timm, small: one or two of each kind."""

from __future__ import annotations

from typing import Any, Final

import zoo_torchvision_ops
from zoo_case import Case, Subject, normal, subject

zoo_torchvision_ops.provide()  # timm imports torchvision

import timm  # noqa: E402

PLAIN: Final[dict[str, Any]] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2}
WINDOWS: Final[dict[str, Any]] = {
    "img_size": 32, "window_size": 2, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4),
}  # fmt: skip
MODELS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "beit_base_patch16_224": (32, PLAIN),
    "cait_xxs24_224": (32, PLAIN),
    "coat_lite_tiny": (32, {"img_size": 32}),
    "coatnet_nano_rw_224": (32, {"img_size": 32}),
    "convit_tiny": (32, {"img_size": 32, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 2}),
    "convmixer_768_32": (32, {}),
    "convnext_atto": (32, {}),
    "convnextv2_atto": (32, {}),
    "cspresnet50": (32, {}),
    "davit_tiny": (32, {"depths": (1, 1, 1, 1), "embed_dims": (16, 16, 32, 32), "num_heads": (2, 2, 2, 2)}),
    "deit_tiny_distilled_patch16_224": (32, PLAIN),
    "dla34": (32, {}),
    "dpn48b": (32, {}),
    "eca_nfnet_l0": (32, {}),
    "edgenext_xx_small": (32, {}),
    "efficientvit_b0": (32, {}),
    "eva02_tiny_patch14_224": (32, PLAIN),
    "fastvit_t8": (64, {}),
    "focalnet_tiny_srf": (32, {}),
    "gernet_s": (32, {}),
    "ghostnet_050": (32, {}),
    "gmixer_24_224": (32, {"img_size": 32}),
    "gmlp_s16_224": (32, {"img_size": 32}),
    "hardcorenas_a": (32, {}),
    "hgnet_tiny": (32, {}),
    "hrnet_w18_small": (32, {}),
    "inception_next_atto": (32, {}),
    "lambda_resnet26t": (64, {}),
    "lcnet_050": (32, {}),
    "levit_128s": (224, {}),
    "mambaout_femto": (32, {}),
    "maxvit_rmlp_pico_rw_256": (64, {"img_size": 64}),
    "mixer_s32_224": (32, {"img_size": 32}),
    "mixnet_s": (32, {}),
    "mobilenetv4_conv_small": (32, {}),
    "mobileone_s0": (32, {}),
    "mobilevit_xxs": (64, {}),
    "mobilevitv2_050": (64, {}),
    "mvitv2_tiny": (64, {"img_size": 64}),
    "nest_tiny": (32, {"img_size": 32}),
    "nf_resnet26": (32, {}),
    "pit_ti_224": (32, {"img_size": 32}),
    "poolformer_s12": (32, {}),
    "pvt_v2_b0": (32, {}),
    "regnetz_005": (32, {}),
    "repvgg_a0": (32, {}),
    "repvit_m0_9": (32, {}),
    "resmlp_12_224": (32, {"img_size": 32}),
    "resnest14d": (32, {}),
    "resnetv2_50": (32, {}),
    "rexnet_100": (32, {}),
    "sequencer2d_s": (32, {"img_size": 32, "layers": (1, 1, 1, 1), "embed_dims": (16, 32, 32, 32)}),
    "swin_tiny_patch4_window7_224": (32, WINDOWS),
    "swinv2_cr_tiny_224": (32, WINDOWS),
    "tiny_vit_5m_224": (64, {}),
    "tf_efficientnetv2_b0": (32, {}),
    "tnt_s_patch16_224": (32, {
        "img_size": 32, "embed_dim": 24, "inner_dim": 8, "depth": 2, "num_heads_inner": 2, "num_heads_outer": 2,
    }),
    "twins_svt_small": (32, {"img_size": 32}),
    "visformer_tiny": (32, {"img_size": 32}),
    "vit_tiny_patch16_224": (32, PLAIN),
    "volo_d1_224": (32, {"img_size": 32}),
    "ese_vovnet19b_dw": (32, {}),
    "xcit_nano_12_p16_224": (32, {"img_size": 32, "depth": 2}),
}  # fmt: skip
"""Name → size of the image, and what else makes the model small."""


def _build(name: str, size: int, more: dict[str, Any]) -> Subject:
    return subject(timm.create_model(name, pretrained=False, num_classes=5, **more), normal(2, 3, size, size))


CASES: Final = [
    Case("timm", name, lambda n=name, s=size, m=more: _build(n, s, m)) for name, (size, more) in MODELS.items()
]
