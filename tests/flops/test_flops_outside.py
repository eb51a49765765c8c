"""A count leaves no fake tensor and no changed global behind: the next real step would fail on them."""

from collections import OrderedDict, deque
from dataclasses import dataclass
from functools import lru_cache

import pytest
import torch
from flops_models import counted, refused
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

LOSSES = []
SEEN = set()
RECENT = deque()
CALLS = 0
MASK = None


@dataclass
class Settings:
    """An object of the module that a forward writes to."""

    last: object = None


SETTINGS = Settings()


class Appends(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        LOSSES.append(("balance", y.sum()))
        RECENT.append(y)
        SEEN.add(y)
        return y


class SetsGlobals(nn.Linear):
    def forward(self, x):
        global CALLS, MASK
        CALLS += 1
        MASK = y = super().forward(x)
        return y


class SetsAttributes(nn.Linear):
    calls = 0
    cache = {}  # noqa: RUF012

    def forward(self, x):
        type(self).calls += 1
        SETTINGS.last = self.cache["x"] = super().forward(x)
        return SETTINGS.last


def contents():
    """Return all that the models of this file write to."""
    kept = SetsAttributes.calls, dict(SetsAttributes.cache), SETTINGS.last
    return [*LOSSES], {*SEEN}, [*RECENT], CALLS, MASK, *kept


@pytest.mark.parametrize("cls", [Appends, SetsGlobals, SetsAttributes])
@pytest.mark.parametrize("trained", [False, True])
def test_writes_of_a_forward_outside_of_the_model_are_undone(cls, trained):
    """Globals, class attributes, containers and objects are as before, also where real steps have filled them."""
    model, x = cls(4, 4), torch.randn(1, 4)
    if trained:
        model(x)
    before = contents()
    assert counted(nn.Sequential(model), x).flops() > 0
    assert contents() == before
    model(x).sum().backward()


def test_a_closure_that_keeps_tensors_is_emptied():
    """A function that a layer holds is not copied with it."""
    kept = []

    def keep(y):
        kept.append(y)
        return y

    class Calls(nn.Linear):
        def forward(self, x):
            return self.act(super().forward(x))

    model = Calls(4, 4)
    model.act = keep
    counted(model, torch.randn(1, 4))
    assert kept == []


class Slots:
    """An object whose attributes are not followed."""

    __slots__ = ("last",)


SLOTS = Slots()


def test_a_tensor_that_is_kept_elsewhere_gives_no_figure():
    """The report says so: this one would break the next step."""

    class Sneaks(nn.Linear):
        def forward(self, x):
            SLOTS.last = super().forward(x)
            return SLOTS.last

    assert refused(Sneaks(4, 4), torch.randn(1, 4)) == (
        "the forward keeps a tensor of shape (1, 4) outside of the model"
    )
    assert type(SLOTS.last) is FakeTensor
    del SLOTS.last


@lru_cache
def cached_mask(size):
    """Return a mask, as the published VRT caches its own."""
    return torch.ones(size)


class Masks(nn.Linear):
    """A forward that asks a cache of ``functools``."""

    def forward(self, x):
        return super().forward(x) * cached_mask(4)


@pytest.mark.parametrize("filled", [False, True])
def test_a_cache_of_functools_is_as_before(filled):
    """A mask of a step that came first is used and kept; a fake one would break the next step."""
    cached_mask.cache_clear()
    mask = cached_mask(4) if filled else None
    counted(Masks(4, 4), torch.randn(1, 4))
    assert type(cached_mask(4)) is torch.Tensor
    assert not filled or cached_mask(4) is mask


class Lazy(OrderedDict):
    """A registry that imports what it is asked for, as the automatic classes of transformers."""

    asked = 0

    def _load(self, *_args):
        Lazy.asked += 1
        raise ImportError("not installed")

    keys = values = items = __iter__ = __getitem__ = _load


REGISTRY = Lazy(a=1)


class UsesRegistry(nn.Linear):
    def forward(self, x):
        return super().forward(x) + len(REGISTRY)


def test_a_lazy_mapping_beside_the_model_loads_nothing():
    """What a container holds is read without the methods of its class."""
    assert counted(UsesRegistry(4, 4), torch.randn(1, 4))
    assert Lazy.asked == 0
