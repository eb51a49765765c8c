"""Models made to trip a profiler, one trap each: unusual modules and unusual tensors."""

import functools
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from zoo_case import Subject, integers, normal, subject
from zoo_nasties import Apply, chain, linear, nasty


class Buffers(nn.Module):
    """Change buffers in forward, in place and by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.mean = self.mean * 0.9 + x.detach().mean(0)
        return self.norm(x) - self.mean


class Symmetric(nn.Module):
    """A parametrization."""

    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


def _parametrized() -> nn.Module:
    model = nn.Sequential(linear(), parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 4))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    parametrize.register_parametrization(model[2], "weight", nn.Identity())
    return model


def _cached() -> Subject:
    def around(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with parametrize.cached():
            return model(*args) + model(*args)

    return subject(_parametrized(), normal(3, 4), around=around)


def _data_parallel() -> nn.Module:
    return nn.DataParallel(nn.Sequential(linear(), nn.BatchNorm1d(4), nn.ReLU(inplace=True)))


def _lazy() -> nn.Module:
    return nn.Sequential(
        nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(2)
    )


def _scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and in use
        return chain(linear(), torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))), nn.ReLU())


def _script_alone() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))


def _traced() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        return chain(linear(), torch.jit.trace(inner, torch.ones(3, 4)), nn.ReLU())


def _quantised_input() -> nn.Module:
    return Apply(lambda a, x: a(x.dequantize()) + x.int_repr().float(), linear())


def _fake_quantised() -> nn.Module:
    fake = torch.ao.quantization.FakeQuantize(
        observer=torch.ao.quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
    )
    return chain(linear(), fake, linear())


def _draw_quantised() -> Tensor:
    return torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 10, torch.quint8)


def _draw_sparse() -> Tensor:
    return torch.randn(3, 4).relu().to_sparse().requires_grad_()


class Inner(nn.Module):
    """A module around one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Doubles(Inner):
    """A module with a ``__call__`` of its own."""

    def __call__(self, *args: Tensor) -> Any:
        return super().__call__(*args) * 2


class Direct(Inner):
    """A module whose ``__call__`` goes to its forward itself."""

    def __call__(self, x: Tensor) -> Any:
        return self.forward(x) * 3


class Closed(Inner):
    """A module that refuses attributes it does not know."""

    known = frozenset({"inner", "training"})

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.known and name not in nn.Module().__dict__:
            raise AttributeError(f"no attribute {name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} stays")


class Watchful(Inner):
    """A module that answers for every attribute it does not have."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return lambda *_args, **_kwargs: name


class Adder:
    """A callable that Python does not bind to the object it is read from."""

    def __call__(self, x: Tensor) -> Tensor:
        return x + 1


FORWARDS: dict[str, Any] = {
    "static method": staticmethod(lambda x: x + 1),
    "class method": classmethod(lambda cls, x: x + len(cls.__name__)),
    "partial method": functools.partialmethod(lambda self, n, x: x + n, 2),
    "callable object": Adder(),
    "property": property(lambda self: lambda x: x * 3),
    "decorated": functools.lru_cache(lambda self, x: x + 4),
}

for _class in (Doubles, Direct, Closed, Watchful):
    nasty(f"class: {_class.__name__}", lambda kind=_class: subject(chain(kind(), linear()), normal(3, 4)))
for _name, _forward in FORWARDS.items():
    nasty(f"forward: {_name}", lambda forward=_forward: subject(
        chain(linear(), type("Unusual", (nn.Module,), {"forward": forward})(), linear()), normal(3, 4)))  # fmt: skip
nasty("buffers changed", lambda: subject(Buffers(), normal(3, 4)))
nasty("parametrizations", lambda: subject(_parametrized(), normal(3, 4)))
nasty("parametrizations, cached", _cached)
nasty("weight norm", lambda: subject(
    chain(parametrizations.weight_norm(nn.Linear(4, 4)), nn.ReLU(inplace=True)), normal(3, 4)))  # fmt: skip
nasty("spectral norm", lambda: subject(
    chain(parametrizations.spectral_norm(nn.Conv1d(2, 3, 2)), nn.Tanh()), normal(3, 2, 5)))  # fmt: skip
nasty("spectral norm, the old form", lambda: subject(
    chain(nn.utils.spectral_norm(nn.Linear(4, 4)), nn.Tanh()), normal(3, 4)))  # fmt: skip
nasty("lazy modules", lambda: subject(_lazy(), normal(2, 2, 5, 5)))
nasty("DataParallel on the CPU", lambda: subject(_data_parallel(), normal(3, 4)))
nasty("scripted inside", lambda: subject(_scripted(), normal(3, 4)))
nasty("scripted as a whole", lambda: subject(_script_alone(), normal(3, 4)))
nasty("traced inside", lambda: subject(_traced(), normal(3, 4)))
nasty("quantised input", lambda: subject(_quantised_input(), _draw_quantised))
nasty("fake quantised", lambda: subject(_fake_quantised(), normal(3, 4)))
nasty("sparse input", lambda: subject(Apply(lambda a, x: a(torch.sparse.mm(x, a.weight)), linear()), _draw_sparse))
nasty("sparse gradients", lambda: subject(
    chain(nn.Embedding(7, 4, sparse=True), linear()), integers(7, 2, 3)))  # fmt: skip
nasty("sparse output", lambda: subject(Apply(lambda a, x: a(x).to_sparse(), linear()), normal(3, 4)))
nasty("complex", lambda: subject(
    chain(linear(), torch.fft.fft, nn.Linear(4, 4, dtype=torch.complex64)), normal(3, 4)))  # fmt: skip
nasty("nested tensors", lambda: subject(
    Apply(lambda a, x: a(torch.nested.as_nested_tensor([x[0], x[1, :2]], layout=torch.jagged)).values(), linear()),
    normal(2, 3, 4)))  # fmt: skip
