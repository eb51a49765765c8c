"""Whether dimension 0 of a model's input counts the samples of a batch, or the steps of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

ITEMS: Final = 64
"""Values of one container that are read."""
DEPTH: Final = 4
IMAGES: Final = {
    3: (nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d),
    4: (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d),
    5: (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d),
}
"""Modules that take batches only with the batch first, by the number of dimensions of their input."""
SEQUENCES: Final = (nn.RNNBase, nn.MultiheadAttention, nn.Transformer)
"""Modules with a setting ``batch_first``."""
NAMED_INPUTS: Final = frozenset({"input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values"})
"""Arguments of models of the transformers library, all with the batch first."""

NO_TENSOR: Final = "no input of the model is a tensor"
NOT_RETURNED: Final = "dimension 0 of the model's input is not that of its output"
UNCERTAIN: Final = "the batch dimension of the model's input is not certain"
VMAP: Final = "the model is called under torch.func.vmap"


def samples_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> int | str:
    """Return the samples in a call of the model; the reason where that is not certain."""
    if _in_transform():
        return VMAP
    taken, returned = _first_tensor((args, kwargs), DEPTH), _first_tensor(output, DEPTH)
    if taken is None:
        return NO_TENSOR
    if returned is None or taken.shape[0] != returned.shape[0]:
        return NOT_RETURNED
    return int(taken.shape[0]) if _is_first(model, taken, kwargs) else UNCERTAIN


def _in_transform() -> bool:
    peek = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
    return peek is not None and peek() is not None


def _is_first(model: nn.Module, taken: Tensor, kwargs: Mapping[str, Any]) -> bool:
    modules = [*model.modules()]
    if any(_is_pretrained(module) for module in modules):
        return taken.ndim >= 2 and (_is_pretrained(model) or not NAMED_INPUTS.isdisjoint(kwargs))
    images = taken.is_floating_point() and any(isinstance(module, IMAGES.get(taken.ndim, ())) for module in modules)
    if images and taken.ndim > 3:
        return True
    sequences = [bool(module.batch_first) for module in modules if isinstance(module, SEQUENCES)]
    if sequences:
        return all(sequences) and taken.ndim >= 2
    return images or (taken.ndim == 2 and taken.is_floating_point())


def _first_tensor(value: Any, depth: int) -> Tensor | None:
    """Return the first tensor that has a dimension; None where there is none."""
    if isinstance(value, Tensor):
        return value if value.ndim else None
    inner: Any = ()
    if depth and isinstance(value, Mapping):
        inner = value.values()
    elif depth and isinstance(value, (tuple, list)):
        inner = value[:ITEMS]
    elif depth and hasattr(type(value), "__dataclass_fields__"):
        inner = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
    return next((found for one in inner if (found := _first_tensor(one, depth - 1)) is not None), None)


def _is_pretrained(module: nn.Module) -> bool:
    return any(
        cls.__name__ == "PreTrainedModel" and cls.__module__.startswith("transformers.") for cls in type(module).__mro__
    )
