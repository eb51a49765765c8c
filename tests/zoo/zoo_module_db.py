"""Torch's own collection of modules with samples of their arguments (``module_db``), each sample a case.

``module_db`` is internal to torch and needs the package expecttest.
"""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from zoo_case import Case, Subject, total

QUICK: Final = (
    "nn.BatchNorm2d", "nn.Conv2d", "nn.Embedding", "nn.LSTM", "nn.GRUCell", "nn.MultiheadAttention",
    "nn.TransformerEncoderLayer", "nn.LazyConv2d", "nn.CTCLoss", "nn.Softplus", "nn.AdaptiveMaxPool2d",
    "nn.Bilinear", "nn.ReLU",
)  # fmt: skip
"""A handful that runs wherever the tests run: at most ``FEW`` samples of each."""
FEW: Final = 3


@cache
def _infos() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    # Importing torch's test utilities forbids to set flags of torch.backends from then on, in the whole process.
    torch.backends.__allow_nonbracketed_mutation_flag = True
    return {info.name: info for info in module_db}


def _samples(info: Any) -> list[Any]:
    """Return the samples of a module, the same ones each time; the generator is left where it was."""
    dtype = torch.float64 if "FractionalMaxPool" in info.name else torch.float32  # what its samples are made for
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True)
        return list(made)


def _fresh(value: Any) -> Any:
    """Copy what a sample passes: each step has leaves of its own."""

    def copied(item: Any) -> Any:
        if isinstance(item, Tensor) and type(item) is Tensor:
            return item.detach().clone().requires_grad_(item.requires_grad)
        return copy.deepcopy(item) if isinstance(item, (nn.Module, Tensor)) else item

    return pytree.tree_map(copied, value)


def _subject(info: Any, sample: Any) -> Subject:
    made = sample.constructor_input
    model = info.module_cls(*_fresh(list(made.args)), **_fresh(dict(made.kwargs)))
    given = sample.forward_input
    return Subject(model, lambda: (tuple(_fresh(list(given.args))), _fresh(dict(given.kwargs))), total)


def _builds(name: str) -> list[Callable[[], Subject]]:
    info = _infos()[name]
    samples = [sample for sample in _samples(info) if sample.forward_input is not None]
    return [lambda sample=sample: _subject(info, sample) for sample in samples]


def module_cases(names: tuple[str, ...] | None = None, few: int | None = None) -> list[Case]:
    """Return a case for every sample of every module of ``module_db`` (of these names, at most ``few`` of each)."""
    cases = []
    for name in _infos() if names is None else names:
        for number, build in enumerate(_builds(name)[:few]):
            cases.append(Case("torch.nn", f"{name.removeprefix('nn.')} {number}", build))
    return cases
