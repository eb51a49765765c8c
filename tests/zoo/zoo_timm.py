"""Models of timm, small: one or two of each kind."""

from typing import Any, Final

import zoo_torchvision_ops
from zoo_case import Case, Subject, normal, subject

zoo_torchvision_ops.provide()  # timm imports torchvision

import timm  # noqa: E402

PLAIN: Final[dict[str, Any]] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2}
WINDOWS: Final[dict[str, Any]] = {
    "img_size": 32, "window_size": 2, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4),
}  # fmt: skip
SMALL: Final = (
    "convmixer_768_32", "convnext_atto", "convnextv2_atto", "cspresnet50", "dla34", "dpn48b", "eca_nfnet_l0",
    "edgenext_xx_small", "efficientvit_b0", "focalnet_tiny_srf", "gernet_s", "ghostnet_050", "hardcorenas_a",
    "hgnet_tiny", "hrnet_w18_small", "inception_next_atto", "lcnet_050", "mambaout_femto", "mixnet_s",
    "mobilenetv4_conv_small", "mobileone_s0", "nf_resnet26", "poolformer_s12", "pvt_v2_b0", "regnetz_005",
    "repvgg_a0", "repvit_m0_9", "resnest14d", "resnetv2_50", "rexnet_100", "tf_efficientnetv2_b0",
    "ese_vovnet19b_dw",
)  # fmt: skip
"""Models that are small as they are."""
SIZED: Final = (
    "coat_lite_tiny", "coatnet_nano_rw_224", "gmixer_24_224", "gmlp_s16_224", "mixer_s32_224", "nest_tiny",
    "pit_ti_224", "resmlp_12_224", "twins_svt_small", "visformer_tiny", "volo_d1_224",
)  # fmt: skip
"""Models that are told the size of the image."""
MODELS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    **dict.fromkeys(SMALL, (32, {})),
    **dict.fromkeys(SIZED, (32, {"img_size": 32})),
    "beit_base_patch16_224": (32, PLAIN),
    "cait_xxs24_224": (32, PLAIN),
    "convit_tiny": (32, {"img_size": 32, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 2}),
    "davit_tiny": (32, {"depths": (1, 1, 1, 1), "embed_dims": (16, 16, 32, 32), "num_heads": (2, 2, 2, 2)}),
    "deit_tiny_distilled_patch16_224": (32, PLAIN),
    "eva02_tiny_patch14_224": (32, PLAIN),
    "fastvit_t8": (64, {}),
    "lambda_resnet26t": (64, {}),
    "levit_128s": (224, {}),
    "maxvit_rmlp_pico_rw_256": (64, {"img_size": 64}),
    "mobilevit_xxs": (64, {}),
    "mobilevitv2_050": (64, {}),
    "mvitv2_tiny": (64, {"img_size": 64}),
    "sequencer2d_s": (32, {"img_size": 32, "layers": (1, 1, 1, 1), "embed_dims": (16, 32, 32, 32)}),
    "swin_tiny_patch4_window7_224": (32, WINDOWS),
    "swinv2_cr_tiny_224": (32, WINDOWS),
    "tiny_vit_5m_224": (64, {}),
    "tnt_s_patch16_224": (32, {
        "img_size": 32, "embed_dim": 24, "inner_dim": 8, "depth": 2, "num_heads_inner": 2, "num_heads_outer": 2,
    }),
    "vit_tiny_patch16_224": (32, PLAIN),
    "xcit_nano_12_p16_224": (32, {"img_size": 32, "depth": 2}),
}  # fmt: skip
"""Name → size of the image, and what else makes the model small."""


def _build(name: str, size: int, more: dict[str, Any]) -> Subject:
    return subject(timm.create_model(name, pretrained=False, num_classes=5, **more), normal(2, 3, size, size))


CASES: Final = [
    Case("timm", name, lambda n=name, s=size, m=more: _build(n, s, m)) for name, (size, more) in MODELS.items()
]
