"""The models: small configurations of known architectures, each with one training step of 30 to 150 ms on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

_ROOT: Final = Path(__file__).resolve().parents[2]

Training = tuple[nn.Module, torch.optim.Optimizer | None, Callable[[], object]]
"""A model in training mode, its optimizer, and a training step."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model, made when it is its turn. ``needs`` is the package that it comes from."""

    name: str
    make: Callable[[], Training]
    needs: str = "torch"

    @property
    def available(self) -> bool:
        """Whether the package is installed."""
        return find_spec(self.needs) is not None


def _training(model: nn.Module, loss: Callable[[], Tensor]) -> Training:
    model.train()
    optimizer = torch.optim.SGD((one for one in model.parameters() if one.requires_grad), lr=1e-4)

    def step() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def import_package(name: str) -> Any:
    """Import a package that imports torchvision, also where torchvision's operators do not load."""
    if find_spec("torchvision") is not None:
        spec = spec_from_file_location("zoo_torchvision_ops", _ROOT / "tests" / "zoo" / "zoo_torchvision_ops.py")
        assert spec is not None
        assert spec.loader is not None
        operators: Any = module_from_spec(spec)
        spec.loader.exec_module(operators)
        _KEPT.append(operators)
        if len(_KEPT) == 1:
            operators.provide()
    return import_module(name)


_KEPT: Final[list[Any]] = []
"""Keeps the declarations of operators alive."""


def _words(architecture: str, options: Mapping[str, Any], batch: int = 2, length: int = 64) -> Callable[[], Training]:
    """Return a maker of a language model of ``transformers`` with its own loss on tokens (batch, length)."""

    def make() -> Training:
        kind: Any = getattr(import_package("transformers"), architecture)
        model = kind(kind.config_class(**options))
        tokens = torch.randint(3, options["vocab_size"], (batch, length))
        return _training(model, lambda: model(input_ids=tokens, labels=tokens).loss)

    return make


def _whisper() -> Training:
    transformers = import_package("transformers")
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=1000, d_model=128, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, max_source_positions=200,
            max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
            use_cache=False,
        )
    )  # fmt: skip
    sound, tokens = torch.randn(2, 80, 400), torch.randint(3, 1000, (2, 48))
    return _training(model, lambda: model(input_features=sound, labels=tokens).loss)


def _images(package: str, name: str, batch: int, side: int, **options: Any) -> Callable[[], Training]:
    """Return a maker of an image classifier: images (batch, 3, side, side), cross entropy."""

    def make() -> Training:
        models = import_package(package)
        create = models.create_model if package == "timm" else models.models.get_model
        model = create(name, num_classes=10, **options)
        images, labels = torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,))
        return _training(model, lambda: nn.functional.cross_entropy(model(images), labels))

    return make


def _faster_rcnn() -> Training:
    torchvision = import_package("torchvision")
    detection = torchvision.models.detection
    backbone = detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    model = detection.FasterRCNN(
        backbone, num_classes=3, min_size=64, max_size=64, rpn_pre_nms_top_n_train=60, rpn_post_nms_top_n_train=20,
        box_batch_size_per_image=8,
    )  # fmt: skip
    image = torch.rand(3, 64, 64)
    boxes = {"boxes": torch.tensor([[10.0, 10.0, 40.0, 50.0]]), "labels": torch.tensor([1])}

    def loss() -> Tensor:
        losses: Mapping[str, Tensor] = model([image], [boxes])
        return torch.stack(list(losses.values())).sum()

    return _training(model, loss)


def _unet() -> Training:
    diffusers = import_package("diffusers")
    model = diffusers.UNet2DConditionModel(
        sample_size=16, block_out_channels=(32, 64, 64), layers_per_block=2, norm_num_groups=8, attention_head_dim=8,
        cross_attention_dim=32, down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    image, times, text = torch.randn(2, 4, 16, 16), torch.tensor([3, 7]), torch.randn(2, 12, 32)
    return _training(model, lambda: model(image, times, text).sample.square().mean())


def _nano_gpt() -> Training:
    from ..gpt import SmallGPT

    model = SmallGPT(vocabulary=1000, width=192, context=64, layers=6, heads=4)
    tokens = torch.randint(0, model.vocabulary, (4, model.context + 1))
    return _training(model, lambda: model.loss(tokens))


def _reference() -> Training:
    from ..workloads import reference

    workload = reference(torch.device("cpu"), "tiny")
    return workload.model, workload.optimizer, workload.step


_GPT2: Final = {"vocab_size": 1000, "n_layer": 6, "n_embd": 192, "n_head": 4, "n_positions": 64, "use_cache": False}
_LLAMA: Final = {
    "vocab_size": 1000, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False,
}  # fmt: skip
_BERT: Final = {
    "vocab_size": 1000, "hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 768,
}  # fmt: skip
_T5: Final = {
    "vocab_size": 1000, "d_model": 192, "d_kv": 48, "d_ff": 512, "num_layers": 4, "num_heads": 4, "use_cache": False,
    "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip

CASES: Final = (
    Case("GPT-2", _words("GPT2LMHeadModel", _GPT2), "transformers"),
    Case("Llama", _words("LlamaForCausalLM", _LLAMA), "transformers"),
    Case("BERT", _words("BertForMaskedLM", _BERT), "transformers"),
    Case("T5", _words("T5ForConditionalGeneration", _T5), "transformers"),
    Case("Whisper", _whisper, "transformers"),
    Case("ViT", _images("timm", "vit_tiny_patch16_224", 2, 96, img_size=96), "timm"),
    Case("ConvNeXt", _images("timm", "convnext_atto", 4, 96), "timm"),
    Case("Swin", _images("timm", "swin_tiny_patch4_window7_224", 1, 112, img_size=112, embed_dim=48), "timm"),
    Case("ResNet-50", _images("torchvision", "resnet50", 1, 96, weights=None), "torchvision"),
    Case("MobileNetV3", _images("torchvision", "mobilenet_v3_large", 4, 96, weights=None), "torchvision"),
    Case("Faster R-CNN", _faster_rcnn, "torchvision"),
    Case("UNet2DCondition", _unet, "diffusers"),
    Case("nanoGPT-like", _nano_gpt),
    Case("reference workload", _reference),
)


def chosen(words: str | None) -> Iterator[Case]:
    """Yield the cases whose names contain one of these words (all without), installed or not."""
    wanted = [word.strip().lower() for word in words.split(",")] if words else [""]
    for case in CASES:
        if any(word in case.name.lower() for word in wanted):
            yield case
