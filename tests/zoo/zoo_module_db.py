"""Torch's own collection of modules with samples of their arguments (``module_db``), each sample a case.

``module_db`` is internal to torch and needs the package expecttest.
"""

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from zoo_case import Case, Subject, total

QUICK: Final[Mapping[str, int]] = {
    "nn.BatchNorm2d": 3, "nn.Conv2d": 3, "nn.Embedding": 2, "nn.LSTM": 3, "nn.GRUCell": 2, "nn.MultiheadAttention": 3,
    "nn.TransformerEncoderLayer": 3, "nn.LazyConv2d": 3, "nn.CTCLoss": 3, "nn.Softplus": 3, "nn.AdaptiveMaxPool2d": 3,
    "nn.Bilinear": 3, "nn.ReLU": 3,
}  # fmt: skip
"""A handful of modules that run wherever the tests run, with the number of their samples that do."""


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


@cache
def _builds(name: str) -> list[Callable[[], Subject]]:
    info = _infos()[name]
    samples = [sample for sample in _samples(info) if sample.forward_input is not None]
    return [lambda sample=sample: _subject(info, sample) for sample in samples]


def _case(name: str, number: int, build: Callable[[], Subject]) -> Case:
    return Case("torch.nn", f"{name.removeprefix('nn.')} {number}", build)


def quick_module_cases() -> list[Case]:
    """Return the cases of ``QUICK``. The collection is imported when the first of them is built, not before."""
    return [
        _case(name, number, lambda name=name, number=number: _builds(name)[number]())
        for name, samples in QUICK.items()
        for number in range(samples)
    ]


def module_cases() -> list[Case]:
    """Return a case for every sample of every module of ``module_db``."""
    return [_case(name, number, build) for name in _infos() for number, build in enumerate(_builds(name))]
