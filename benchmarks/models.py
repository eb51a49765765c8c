"""The models that are compared: known architectures with random weights, of installed packages and of this repository.

The same table serves ``truth``, ``hot_path`` and ``compiled``. A model is made when it is its turn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from .gpt import SmallGPT

Batch = Callable[[int], tuple[tuple[Any, ...], dict[str, Any], Any]]
"""Return the arguments of a step, its keyword arguments, and its target."""
Loss = Callable[[Any, Any], Tensor]
Built = tuple[nn.Module, Batch, Loss]
Training = tuple[nn.Module, torch.optim.Optimizer, Callable[[], object]]
"""A model in training mode, its optimizer, and a training step."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of models of words and images."""

    width: int
    layers: int
    tokens: int
    words: int
    batch: int


TINY: Final = Size(64, 2, 32, 128, 2)
SMALL: Final = Size(192, 6, 64, 1000, 2)


@dataclass(frozen=True, slots=True)
class Model:
    """A model of one size, and the package that it needs."""

    name: str
    build: Callable[[], Built]
    needs: str = "torch"
    family: str = "transformer"
    fullgraph: bool = True

    @property
    def is_available(self) -> bool:
        """Whether the package is installed."""
        return find_spec(self.needs) is not None


def train(model: Model, device: torch.device | None = None) -> Training:
    """Make a model and a training step of it, on one batch."""
    module, batch, loss = model.build()
    place = device or torch.device("cpu")
    module.to(place).train()
    args, kwargs, target = tree_map(lambda one: one.to(place) if isinstance(one, Tensor) else one, batch(0))
    optimizer = torch.optim.SGD((one for one in module.parameters() if one.requires_grad), lr=1e-4)

    def step() -> None:
        loss(module(*args, **kwargs), target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return module, optimizer, step


def import_package(name: str) -> Any:
    """Import a package that imports torchvision, also where torchvision's operators do not load."""
    folder = str(Path(__file__).resolve().parents[1] / "tests" / "zoo")
    if find_spec("torchvision") is not None and not _PROVIDED:
        sys.path.append(folder)
        try:
            _PROVIDED.append(import_module("zoo_torchvision_ops"))
        finally:
            sys.path.remove(folder)
        _PROVIDED[0].provide()
    return import_module(name)


_PROVIDED: Final[list[Any]] = []
"""Keeps the declarations of operators alive."""


def _generator(at: int) -> torch.Generator:
    return torch.Generator().manual_seed(3000 + at)


def squares(output: Any, _target: Any) -> Tensor:
    """Return the mean square of the output."""
    found: Tensor = output.float().pow(2).mean()
    return found


def entropy(output: Any, target: Tensor) -> Tensor:
    """Return the cross entropy of the logits of all places."""
    logits = output if isinstance(output, Tensor) else output[0]
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


def _own_loss(output: Any, _target: Any) -> Tensor:
    loss: Tensor = output.loss
    return loss


def floats(*shape: int, classes: int = 0) -> Batch:
    """Return batches of random numbers, with labels where there are classes."""

    def batch(at: int) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        draw = _generator(at)
        x = torch.randn(shape, generator=draw)
        return (x,), {}, torch.randint(0, classes, shape[:1], generator=draw) if classes else None

    return batch


def tokens(size: Size, keys: tuple[str, ...] = (), **more: Callable[[torch.Generator], Tensor]) -> Batch:
    """Return batches of random words: as the first argument, or under these keys with further inputs."""

    def batch(at: int) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        draw = _generator(at)
        words = torch.randint(3, size.words, (size.batch, size.tokens), generator=draw)
        if not keys:
            return (words,), {}, words
        return (), {**dict.fromkeys(keys, words), **{key: make(draw) for key, make in more.items()}}, None

    return batch


def _config(size: Size, **more: Any) -> dict[str, Any]:
    """Return a configuration for any model of ``transformers``: each takes the keys that it knows, none has dropout."""
    width, layers = size.width, size.layers
    layered = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")
    wide = ("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim")
    heads = ("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads")
    dropped = (
        "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "hidden_dropout", "resid_pdrop",
        "embd_pdrop", "attn_pdrop", "dropout", "dropout_rate", "activation_dropout", "classifier_dropout_prob",
        "drop_path_rate", "layerdrop", "feat_proj_dropout", "mask_time_prob",
    )  # fmt: skip
    return {
        "vocab_size": size.words, "hidden_size": width, "d_model": width, "d_kv": width // 4, "head_dim": width // 4,
        **dict.fromkeys(layered, layers), **dict.fromkeys(wide, 4 * width), **dict.fromkeys(heads, 4),
        **dict.fromkeys(dropped, 0.0), "max_position_embeddings": size.tokens + 2, "use_cache": False,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, **more,
    }  # fmt: skip


def hugging(
    name: str, architecture: str, size: Size, batch: Batch | None = None, *, family: str = "transformer",
    loss: Loss = _own_loss, checkpoint: bool | None = None, **config: Any,
) -> Model:  # fmt: skip
    """Return a model of ``transformers``. ``checkpoint``: whether its activation checkpointing is reentrant."""

    def build() -> Built:
        kind: Any = getattr(import_package("transformers"), architecture)
        options = _config(size, **config)
        if "T5" in architecture:
            del options["head_dim"]
        if architecture.endswith("ImageClassification"):
            options["problem_type"] = "single_label_classification"  # else set at the first call: dynamo compiles twice
        model = kind(kind.config_class(**options))
        if architecture == "GPT2LMHeadModel":
            model.loss_type = "ForCausalLM"  # else a warning, which breaks the graph
        if checkpoint is not None:
            model.gradient_checkpointing_enable({"use_reentrant": checkpoint})
        return model, batch or tokens(size, ("input_ids", "labels")), loss

    return Model(name, build, "transformers", family)


def pixels(side: int, classes: int = 5, batch: int = 2) -> Batch:
    """Return batches of images for ``transformers``, with labels."""
    made = floats(batch, 3, side, side, classes=classes)

    def keyed(at: int) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        (x,), _, labels = made(at)
        return (), {"pixel_values": x, "labels": labels}, None

    return keyed


def whisper(size: Size, frames: int) -> Model:
    """Return a model from sound to words."""
    batch = tokens(size, ("labels",), input_features=lambda draw: torch.randn(size.batch, 16, frames, generator=draw))
    places: dict[str, Any] = {
        "num_mel_bins": 16,
        "max_source_positions": frames // 2,
        "max_target_positions": size.tokens,
    }
    return hugging(
        "Whisper", "WhisperForConditionalGeneration", size, batch, begin_suppress_tokens=None, **places
    )  # fmt: skip


def images(package: str, name: str, batch: int, side: int, *, checkpoint: bool = False, **options: Any) -> Model:
    """Return an image classifier of torchvision or timm: images (batch, 3, side, side), cross entropy."""

    def build() -> Built:
        models = import_package(package)
        create = models.create_model if package == "timm" else models.models.get_model
        model = create(name, num_classes=10, **options)
        if checkpoint:
            model.set_grad_checkpointing(True)
        return model, floats(batch, 3, side, side, classes=10), entropy

    return Model(name + ", checkpointed" * checkpoint, build, package, "convolution")


def _faster_rcnn() -> Built:
    detection = import_package("torchvision").models.detection
    backbone = detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    model = detection.FasterRCNN(
        backbone, num_classes=3, min_size=64, max_size=64, rpn_pre_nms_top_n_train=60, rpn_post_nms_top_n_train=20,
        box_batch_size_per_image=8,
    )  # fmt: skip
    boxes = {"boxes": torch.tensor([[10.0, 10.0, 40.0, 50.0]]), "labels": torch.tensor([1])}
    image = torch.rand(3, 64, 64)
    return model, lambda _at: (([image], [boxes]), {}, None), lambda found, _: torch.stack(list(found.values())).sum()


def _diffusers_unet() -> Built:
    model = import_package("diffusers").UNet2DConditionModel(
        sample_size=16, block_out_channels=(32, 64, 64), layers_per_block=2, norm_num_groups=8, attention_head_dim=8,
        cross_attention_dim=32, down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    given = torch.randn(2, 4, 16, 16), torch.tensor([3, 7]), torch.randn(2, 12, 32)
    return model, lambda _at: (given, {}, None), lambda found, _: squares(found.sample, None)


def small_gpt(size: Size, name: str = "small GPT") -> Model:
    """Return a GPT as people write it."""

    def build() -> Built:
        model = SmallGPT(
            vocabulary=size.words, context=size.tokens, width=size.width, layers=size.layers, heads=4
        )  # fmt: skip
        return model, tokens(size), entropy

    return Model(name, build)


def reference_workload(size: str, *, checkpoint: bool) -> Model:
    """Return the demo's model."""

    def build() -> Built:
        from examples.demo.losses import deblurring_loss

        from .workloads import reference_model

        model, frames, spike = reference_model(size, checkpoint=checkpoint)
        draw = _generator(0)
        given = torch.rand(frames, generator=draw), torch.rand(spike, generator=draw)
        return model, lambda _at: (given, {}, torch.rand(frames, generator=_generator(1))), deblurring_loss

    return Model("reference workload" + ", checkpointed" * checkpoint, build)


_DEEP: Final = Size(256, 4, 64, 1000, 4)
TRUTH: Final = (
    images("torchvision", "resnet18", 8, 96),
    images("torchvision", "densenet121", 4, 96),
    images("torchvision", "googlenet", 8, 96, init_weights=False),
    images("torchvision", "mobilenet_v3_large", 8, 128),
    images("torchvision", "swin_t", 2, 112),
    images("torchvision", "convnext_tiny", 2, 96),
    images("timm", "vit_tiny_patch16_224", 4, 224),
    images("timm", "vit_tiny_patch16_224", 4, 224, checkpoint=True),
    images("timm", "regnety_004", 4, 128, checkpoint=True),
    hugging("GPT-2", "GPT2LMHeadModel", _DEEP),
    hugging("GPT-2, checkpointed", "GPT2LMHeadModel", _DEEP, checkpoint=False),
    hugging("Llama", "LlamaForCausalLM", _DEEP),
    hugging("Llama, reentrant", "LlamaForCausalLM", _DEEP, checkpoint=True),
    hugging("BERT", "BertForMaskedLM", _DEEP),
    hugging("T5", "T5ForConditionalGeneration", _DEEP),
    small_gpt(_DEEP),
    reference_workload("small", checkpoint=True),
    reference_workload("small", checkpoint=False),
)
HOT_PATH: Final = (
    hugging("GPT-2", "GPT2LMHeadModel", SMALL),
    hugging("Llama", "LlamaForCausalLM", SMALL, num_key_value_heads=2, head_dim=48),
    hugging("BERT", "BertForMaskedLM", SMALL),
    hugging("T5", "T5ForConditionalGeneration", SMALL),
    whisper(SMALL, 400),
    images("timm", "vit_tiny_patch16_224", 2, 96, img_size=96),
    images("timm", "convnext_atto", 4, 96),
    images("timm", "swin_tiny_patch4_window7_224", 1, 112, img_size=112, embed_dim=48),
    images("torchvision", "resnet50", 2, 96, weights=None),
    images("torchvision", "mobilenet_v3_large", 4, 96, weights=None),
    Model("Faster R-CNN", _faster_rcnn, "torchvision"),
    Model("UNet2DCondition", _diffusers_unet, "diffusers"),
    small_gpt(Size(192, 6, 64, 1000, 4)),
    reference_workload("tiny", checkpoint=True),
)
