"""The compared steps: models of installed packages, and models of this repository."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Case:
    """A model and one training step of it, made when it is its turn. ``needs`` is the package it comes from."""

    name: str
    make: Callable[[torch.device], tuple[nn.Module, Callable[[], object]]]
    needs: str = "torch"

    @property
    def available(self) -> bool:
        """Whether the package is installed."""
        return find_spec(self.needs) is not None


def _images(make: Callable[[], nn.Module], batch: int, side: int) -> Callable[[torch.device], Any]:
    """Return a maker of an image classifier: images (batch, 3, side, side), cross entropy, SGD."""

    def build(device: torch.device) -> tuple[nn.Module, Callable[[], object]]:
        model = make().to(device).train()
        images = torch.randn(batch, 3, side, side, device=device)
        labels = torch.randint(0, 10, (batch,), device=device)
        return model, _step(model, lambda: nn.functional.cross_entropy(_logits(model(images)), labels))

    return build


def _logits(output: Any) -> Tensor:
    logits = output if isinstance(output, Tensor) else output[0]
    assert isinstance(logits, Tensor)
    return logits


def _step(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], object]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def _torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        _declare_torchvision()
        model: nn.Module = import_module("torchvision.models").get_model(name, weights=None, num_classes=10, **options)
        return model

    return make


def _declare_torchvision() -> None:
    """Let torchvision be imported beside a torch of another build.

    Its wheel on PyPI is built for CUDA and cannot load its operators beside a torch for the CPU; then it fails on
    giving them shape functions. Models for classification use none of them: any schema will do.
    """
    spec = find_spec("torchvision")
    if _DECLARED or "torchvision" in sys.modules or spec is None or spec.origin is None:
        return
    folder = Path(spec.origin).parent
    operators: Any = torch.ops
    libraries: Any = torch.library
    try:
        operators.load_library(next(folder.glob("_C*")))
    except (OSError, StopIteration):
        library = libraries.Library("torchvision", "DEF")
        _DECLARED.append(library)
        registrations = (folder / "_meta_registrations.py").read_text(encoding="utf-8")
        for name in re.findall(r'register_fake\("torchvision::(\w+)"\)', registrations):
            library.define(f"{name}() -> ()")


_DECLARED: Final[list[Any]] = []
"""Keeps the declarations alive: torch undoes one when its object dies."""


def _timm(name: str, *, checkpoint: bool = False) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        _declare_torchvision()
        model: Any = import_module("timm").create_model(name, pretrained=False, num_classes=10)
        model.set_grad_checkpointing(checkpoint)
        made: nn.Module = model
        return made

    return make


def _words(
    architecture: str, options: Mapping[str, Any], *, checkpoint: bool | None = None, batch: int = 2, length: int = 64
) -> Callable[[torch.device], Any]:
    """Return a maker of a language model of ``transformers`` and its own loss on tokens (batch, length).

    ``checkpoint``: None for none, else whether it is of the reentrant form.
    """

    def build(device: torch.device) -> tuple[nn.Module, Callable[[], object]]:
        _declare_torchvision()
        kind: Any = getattr(import_module("transformers"), architecture)
        model = kind(kind.config_class(**options)).to(device).train()
        if checkpoint is not None:
            model.gradient_checkpointing_enable({"use_reentrant": checkpoint})
        tokens = torch.randint(0, options["vocab_size"], (batch, length), device=device)
        return model, _step(model, lambda: model(input_ids=tokens, labels=tokens).loss)

    return build


_GPT2: Final = {"vocab_size": 1000, "n_layer": 4, "n_embd": 256, "n_head": 4, "n_positions": 128, "use_cache": False}
_LLAMA: Final = {
    "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False,
}  # fmt: skip
_T5: Final = {
    "vocab_size": 1000, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 3, "num_heads": 4, "use_cache": False,
    "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
_BERT: Final = {
    "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024,
}  # fmt: skip


def _reference(checkpoint: bool) -> Callable[[torch.device], Any]:
    def build(device: torch.device) -> tuple[nn.Module, Callable[[], object]]:
        from ..workloads import reference

        workload = reference(device, checkpoint=checkpoint)
        return workload.model, workload.step

    return build


def _small_gpt(device: torch.device) -> tuple[nn.Module, Callable[[], object]]:
    from ..gpt import SmallGPT

    model = SmallGPT(vocabulary=8000, width=256, context=128).to(device)  # its loss is outside, and not small
    tokens = torch.randint(0, model.vocabulary, (4, model.context + 1), device=device)
    return model, _step(model, lambda: model.loss(tokens))


CASES: Final = (
    Case("torchvision resnet18", _images(_torchvision("resnet18"), 8, 96), "torchvision"),
    Case("torchvision densenet121", _images(_torchvision("densenet121"), 4, 96), "torchvision"),
    Case("torchvision googlenet", _images(_torchvision("googlenet", init_weights=False), 8, 96), "torchvision"),
    Case("torchvision mobilenet_v3_large", _images(_torchvision("mobilenet_v3_large"), 8, 128), "torchvision"),
    Case("torchvision swin_t", _images(_torchvision("swin_t"), 2, 112), "torchvision"),
    Case("torchvision convnext_tiny", _images(_torchvision("convnext_tiny"), 2, 96), "torchvision"),
    Case("timm vit_tiny", _images(_timm("vit_tiny_patch16_224"), 4, 224), "timm"),
    Case("timm vit_tiny, checkpointed", _images(_timm("vit_tiny_patch16_224", checkpoint=True), 4, 224), "timm"),
    Case("timm regnety_004, checkpointed", _images(_timm("regnety_004", checkpoint=True), 4, 128), "timm"),
    Case("transformers GPT-2", _words("GPT2LMHeadModel", _GPT2), "transformers"),
    Case("transformers GPT-2, checkpointed", _words("GPT2LMHeadModel", _GPT2, checkpoint=False), "transformers"),
    Case("transformers Llama", _words("LlamaForCausalLM", _LLAMA), "transformers"),
    Case("transformers Llama, reentrant", _words("LlamaForCausalLM", _LLAMA, checkpoint=True), "transformers"),
    Case("transformers BERT", _words("BertForMaskedLM", _BERT), "transformers"),
    Case("transformers T5", _words("T5ForConditionalGeneration", _T5), "transformers"),
    Case("small GPT", _small_gpt),
    Case("reference workload, checkpointed", _reference(checkpoint=True)),
    Case("reference workload", _reference(checkpoint=False)),
)


def chosen(words: str | None) -> Iterator[Case]:
    """Yield the cases whose names contain one of these words (all without), installed or not."""
    wanted = [word.strip().lower() for word in words.split(",")] if words else [""]
    for case in CASES:
        if any(word in case.name.lower() for word in wanted):
            yield case
