"""Modules of unusual classes are recorded as they are, and left as they are."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from mark_promises import ALL, as_bare, backwards, forwards, train_step
from torch import Tensor, nn


class Doubles(nn.Module):
    """A module with a ``__call__`` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def __call__(self, x: Tensor) -> Any:
        return super().__call__(x) * 2


class Direct(Doubles):
    """A module whose ``__call__`` goes to its forward itself."""

    def __call__(self, x: Tensor) -> Any:
        return self.forward(x) * 3


class Closed(nn.Module):
    """A module that refuses attributes it does not know."""

    known = frozenset({"inner", "training"})

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.known and name not in nn.Module().__dict__:
            raise AttributeError(f"no attribute {name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} stays")

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Watchful(nn.Module):
    """A module that answers for every attribute it does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return lambda *_args, **_kwargs: name

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.parametrize("kind", [Doubles, Direct, Closed, Watchful])
def test_a_module_of_an_unusual_class_trains_as_without_a_session(kind: type[nn.Module]) -> None:
    """Its layer is recorded; so is the module itself where its class calls ``nn.Module.__call__``."""
    for frame in as_bare(kind, train_step, steps=3):
        assert forwards(frame)["inner"] == backwards(frame)["inner"] == 1
        if kind is not Direct:
            assert forwards(frame)[kind.__name__] == backwards(frame)[kind.__name__] == 1


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


@pytest.mark.parametrize("kind", FORWARDS)
def test_a_forward_of_any_kind_is_called_as_without_a_session(kind: str) -> None:
    """And recorded."""
    unusual = type("Unusual", (nn.Module,), {"forward": FORWARDS[kind]})
    for frame in as_bare(lambda: nn.Sequential(nn.Linear(3, 3), unusual(), nn.Linear(3, 3)), train_step):
        assert forwards(frame) == backwards(frame) == ALL
