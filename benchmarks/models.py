"""The models that are compared: known architectures with random weights, of installed packages and of this repository.

``truth`` and ``compiled`` choose from here. A model is made when it is its turn.
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


@dataclass(frozen=True, slots=True)
class Model:
    """A model of one size, and the package that it needs."""

    name: str
    build: Callable[[], Built]
    needs: str = "torch"
    family: str = "transformer"

    @property
    def is_available(self) -> bool:
        """Whether the package is installed."""
        return find_spec(self.needs) is not None


def train(model: Model) -> Training:
    """Make a model and a training step of it, on one batch."""
    module, batch, loss = model.build()
    module.train()
    args, kwargs, target = batch(0)
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


def tokens(size: Size, keys: tuple[str, ...] = ()) -> Batch:
    """Return batches of random words: as the first argument, or under these keys."""

    def batch(at: int) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        words = torch.randint(3, size.words, (size.batch, size.tokens), generator=_generator(at))
        return ((), dict.fromkeys(keys, words), None) if keys else ((words,), {}, words)

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
        if architecture.endswith("ImageClassification"):  # the sizes of text would be taken for those of its stages
            options = {key: value for key, value in options.items() if key in config or "drop" in key}
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


def small_gpt(size: Size) -> Model:
    """Return a GPT as people write it."""

    def build() -> Built:
        model = SmallGPT(vocabulary=size.words, context=size.tokens, width=size.width, layers=size.layers, heads=4)
        return model, tokens(size), entropy

    return Model("small GPT", build)


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
    images("torchvision", "mobilenet_v3_large", 8, 128),
    images("torchvision", "swin_t", 2, 112),
    images("timm", "vit_tiny_patch16_224", 4, 224, checkpoint=True),
    hugging("GPT-2", "GPT2LMHeadModel", _DEEP),
    hugging("GPT-2, checkpointed", "GPT2LMHeadModel", _DEEP, checkpoint=False),
    hugging("Llama, reentrant", "LlamaForCausalLM", _DEEP, checkpoint=True),
    hugging("BERT", "BertForMaskedLM", _DEEP),
    hugging("T5", "T5ForConditionalGeneration", _DEEP),
    small_gpt(_DEEP),
    reference_workload("small", checkpoint=True),
)
"""Each way in which a model's backward differs from its forward is once here: convolutions, attention, recompute of
both kinds, tied weights, an encoder with a decoder."""
