"""Models made to trip a profiler, one trap each: what they take, what they return, and what they are made of."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from zoo_case import Case, Subject, integers, normal, subject

CASES: list[Case] = []


def nasty(name: str, build: Callable[[], Subject]) -> None:
    """Add a case."""
    CASES.append(Case("nasty", name, build))


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], *children: nn.Module) -> None:
        super().__init__()
        self.function = function
        for number, child in enumerate(children):
            self.add_module(f"child{number}", child)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*self.children(), *args, **kwargs)


def chain(*layers: Any) -> nn.Sequential:
    """Return modules, or functions as modules, in a row."""
    return nn.Sequential(*(layer if isinstance(layer, nn.Module) else Apply(layer) for layer in layers))


def linear() -> nn.Module:
    """Return a small layer."""
    return nn.Linear(4, 4)


class Pair(NamedTuple):
    """An output as a named tuple."""

    left: Any
    right: Any


@dataclass
class Record:
    """An output as a dataclass."""

    loss: Any
    note: str
    parts: Any = None


@dataclass(frozen=True)
class SlottedRecord:
    """An output as a dataclass without a ``__dict__``."""

    __slots__ = ("first", "second")
    first: Tensor
    second: Tensor


class Opaque:
    """An output as an object of no known kind."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.itself = self


def _same(module: nn.Module, x: Tensor) -> Tensor:
    y = module(x)
    return y * 2 if y is x else y * 3  # another number where the object is another


def _shared() -> nn.Module:
    layer = linear()
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Sequential(layer, nn.Tanh()), layer)


class Tied(nn.Module):
    """An embedding whose weight is the decoder's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.decode = nn.Linear(4, 7, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.embed(x))


class Packed(nn.Module):
    """A recurrent layer on packed sequences, which come as an argument and go as a result."""

    def __init__(self, kind: type[nn.RNNBase], **more: Any) -> None:
        super().__init__()
        self.rnn = kind(4, 3, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True, **more)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, [3, 2], batch_first=True, enforce_sorted=False)
        output, _ = self.rnn(packed)
        return self.head(pad_packed_sequence(output, batch_first=True)[0])


class Weird(nn.Module):
    """Return the same number in another container each time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    def forward(self, x: Tensor, kind: str) -> Any:
        y = self.layer(x)
        made: dict[str, Any] = {
            "none": {"loss": y.sum(), "nothing": None},
            "text": (y, "text", 3, 2.5, True, b"bytes"),
            "named": Pair(y, Pair(y * 2, None)),
            "dataclass": Record(y, "note", [{"deep": (y.exp(),)}]),
            "slots": SlottedRecord(y, y.exp()),
            "ordered": OrderedDict(b=y, a=y + 1),
            "deep": [[[[[{"x": ((y,),)}]]]]],
            "opaque": Opaque(y),
            "set": {y},
            "many": [y[i % len(y)] for i in range(300)],
            "views": list(y.unbind(0)),
            "packed": pack_sequence([y, y[:1]]),
            "twice": [y, y],
        }
        return made[kind]


KINDS = (
    "none", "text", "named", "dataclass", "slots", "ordered", "deep", "opaque", "set", "many", "views", "packed",
    "twice",
)  # fmt: skip


class Outer(nn.Module):
    """Hand what the inner module returns through, then make one number of it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.inner, self.same = linear(), Weird(), nn.Identity()

    def forward(self, x: Tensor) -> Any:
        return self.same(self.inner(self.first(x), self.kind))


class KeywordsOnly(nn.Module):
    """Take nothing by position."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    def forward(self, *, x: Tensor, scale: float = 1.0, mask: Tensor | None = None) -> Tensor:
        return self.layer(input=x * scale) if mask is None else self.layer(input=x) * mask


class LeafOut(nn.Module):
    """Return the parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self) -> Tensor:
        return self.weight


class Prompt(nn.Module):
    """Use what a child returns, which is its parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt, self.layer = LeafOut(), linear()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x + self.prompt())


def _inplace_everywhere() -> nn.Module:
    layers: list[nn.Module] = []
    for activation in (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.Hardswish, nn.Mish, nn.CELU, nn.Hardtanh):
        layers += [linear(), activation(inplace=True)]
    return nn.Sequential(*layers, nn.Dropout(0.4, inplace=True), nn.Threshold(0.1, 0.0, inplace=True))


VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "slice": lambda x: x[1:],
    "expand": lambda x: x[:1].expand(3, 4),
    "chunk": lambda x: x.chunk(2, dim=-1)[0],
    "select": lambda x: x[0],
    "narrow-in-place": lambda x: x[:, :2].mul_(2),
    "view-as-itself": lambda x: x.view_as(x),
    "in-place-and-return": lambda x: x.add_(1.0),
}


def _views(function: Callable[[Tensor], Any], later: bool) -> nn.Module:
    def after(x: Tensor) -> Tensor:
        return x.mul_(0.5) if later else x * 0.5

    return chain(linear(), lambda x: x * 1.0, function, after)


nasty("in-place activations everywhere", lambda: subject(_inplace_everywhere(), normal(3, 4)))
nasty("in-place first, on the input", lambda: subject(chain(nn.ReLU(inplace=True), linear()), normal(3, 4)))
for _name, _function in VIEWS.items():
    nasty(f"view returned: {_name}", lambda f=_function: subject(_views(f, False), normal(3, 4)))
    if _name not in ("expand", "chunk"):
        nasty(f"view changed later: {_name}", lambda f=_function: subject(_views(f, True), normal(3, 4)))
nasty("input returned", lambda: subject(chain(linear(), nn.Identity(), nn.Sequential(), nn.Identity()), normal(3, 4)))
nasty("input returned, a leaf", lambda: subject(chain(nn.Identity(), linear()), normal(3, 4, grad=True)))
nasty("only a leaf returned", lambda: subject(nn.Identity(), normal(3, 4, grad=True)))
nasty("is it the same object", lambda: subject(Apply(_same, nn.Identity()), normal(3, 4, grad=True)))
nasty("is it the same object, trained", lambda: subject(
    Apply(lambda a, same, x: _same(same, a(x)), linear(), nn.Dropout(0.0)), normal(3, 4)))  # fmt: skip
nasty("one layer called four times", lambda: subject(_shared(), normal(3, 4)))
nasty("weights tied", lambda: subject(Tied(), integers(7, 2, 3)))
nasty("packed LSTM", lambda: subject(Packed(nn.LSTM), normal(2, 3, 4)))
nasty("packed LSTM with projection", lambda: subject(
    Apply(lambda rnn, x: rnn(pack_sequence([x[0], x[1, :2]])), nn.LSTM(4, 3, proj_size=2)),
    normal(2, 3, 4)))  # fmt: skip
nasty("packed GRU", lambda: subject(Packed(nn.GRU), normal(2, 3, 4)))
nasty("packed RNN", lambda: subject(Packed(nn.RNN), normal(2, 3, 4)))
for _kind in KINDS:
    nasty(f"output: {_kind}", lambda kind=_kind: subject(Outer(kind), normal(3, 4)))
nasty("output: only None", lambda: subject(Apply(lambda x: None), normal(3, 4)))
nasty("output: a number", lambda: subject(Apply(lambda a, x: float(a(x).sum()), linear()), normal(3, 4)))
nasty("output: only text", lambda: subject(Apply(lambda x: "text"), normal(3, 4)))
nasty("no parameters at all", lambda: subject(chain(nn.ReLU(), nn.Flatten(), nn.Softmax(-1)), normal(3, 4, grad=True)))
nasty("nothing needs a gradient", lambda: subject(chain(linear(), nn.Tanh()).requires_grad_(False), normal(3, 4)))
nasty("frozen below, trained above", lambda: subject(
    chain(linear().requires_grad_(False), nn.Tanh(), linear()), normal(3, 4)))  # fmt: skip
nasty("input a leaf with a gradient", lambda: subject(chain(linear(), nn.Tanh(), linear()), normal(3, 4, grad=True)))
nasty("keywords only", lambda: Subject(KeywordsOnly(), lambda: ((), {"x": torch.randn(3, 4), "scale": 2.0})))
nasty("keywords only, None among them", lambda: Subject(
    KeywordsOnly(), lambda: ((), {"x": torch.randn(3, 4, requires_grad=True), "mask": torch.ones(4)})))  # fmt: skip
nasty("no argument", lambda: subject(LeafOut()))
nasty("a parameter returned by a child", lambda: subject(Prompt(), normal(3, 4)))
nasty("dropout everywhere", lambda: subject(
    chain(nn.Dropout(0.5), linear(), nn.AlphaDropout(0.3), linear(), nn.RReLU()), normal(3, 4)))  # fmt: skip
