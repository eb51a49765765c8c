"""A forward that may write outside of the model is not run a second time; the reason names the place."""

import logging
from collections import deque
from dataclasses import dataclass
from functools import lru_cache, partial, wraps

import pytest
import torch
from flops_models import call_of, counted, refused
from torch import nn
from torch.nn import functional

from autoprof._metrics.flops import count_call

KEPT = {}
LOSSES = []
SEEN = set()
RECENT = deque()
CALLS = 0
SCALES = {"half": 0.5}
ACTIVATIONS = {"relu": functional.relu}
log = logging.getLogger("flops.side_effects")


class Settings:
    """An object of the module that other code may hold."""

    scale = 2.0
    last = None

    def remember(self, value):
        self.last = value

    def times(self, value):
        return value * self.scale


SETTINGS = Settings()
HELD = {"kept": []}


@dataclass
class Pair:
    """A return value of a forward."""

    left: torch.Tensor
    right: torch.Tensor


def note(value):
    KEPT["last"] = value


def indirectly(value):
    return note(value)


class Does(nn.Linear):
    """A layer that does something beside its work."""

    shared: list = []  # noqa: RUF012

    def __init__(self, act):
        super().__init__(4, 4)
        self.act = act


class KeepsInDict(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        KEPT["mask"] = y
        return y


class KeepsDeep(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        KEPT.setdefault("masks", []).append(y)
        return y


class Appends(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        LOSSES.append(("balance", y.sum()))
        return y


class Hands(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        list.append(LOSSES, y)
        return y


class Aliases(nn.Linear):
    def forward(self, x):
        kept = RECENT
        kept.append(super().forward(x))
        return kept[-1]


class CountsGlobally(nn.Linear):
    def forward(self, x):
        global CALLS
        CALLS += 1
        return super().forward(x)


class CountsInClass(nn.Linear):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x)


class CountsInNamedClass(nn.Linear):
    calls = 0

    def forward(self, x):
        CountsInNamedClass.calls += 1
        return super().forward(x)


class SharesWithItsClass(nn.Linear):
    cache = {}  # noqa: RUF012

    def forward(self, x):
        self.cache["x"] = x
        return super().forward(x)


class SetsAttribute(nn.Linear):
    def forward(self, x):
        SETTINGS.last = x
        return super().forward(x)


class CallsMethod(nn.Linear):
    def forward(self, x):
        SETTINGS.remember(x)
        return super().forward(x)


class Prints(nn.Linear):
    def forward(self, x):
        print(x.shape)
        return super().forward(x)


class Saves(nn.Linear):
    def forward(self, x):
        torch.save(x, "/dev/null")
        return super().forward(x)


class GoesRound(nn.Linear):
    def forward(self, x):
        indirectly(x)
        return super().forward(x)


class GoesThroughSelf(nn.Linear):
    def forward(self, x):
        self.helper(x)
        return super().forward(x)

    def helper(self, x):
        note(x)


class Tracker:
    def update(self, x):
        LOSSES.append(x)


class GoesThroughList(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.trackers = [Tracker()]

    def forward(self, x):
        for tracker in self.trackers:
            tracker.update(x)
        return super().forward(x)


class HasMethod(nn.Linear):
    def remember(self, x):
        LOSSES.append(x)


class CallsMethodOfChild(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = HasMethod(4, 4)

    def forward(self, x):
        self.child.remember(x)
        return self.child(x)


def remembered(forward):
    @wraps(forward)
    def around(self, x):
        y = forward(self, x)
        LOSSES.append(y)
        return y

    return around


class Decorated(nn.Linear):
    @remembered
    def forward(self, x):
        return functional.linear(x, self.weight)


class DecoratedByTorch(nn.Linear):
    @torch.autocast("cpu", enabled=False)
    def forward(self, x):
        LOSSES.append(x)
        return super().forward(x)


class AliasesWhatIsHeld(nn.Linear):
    def forward(self, x):
        kept = HELD["kept"]
        kept.append(x)
        return super().forward(x)


class GoesThroughObject(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.tracker = Tracker()

    def forward(self, x):
        self.tracker.update(x)
        return super().forward(x)


class Remembers(nn.Module):
    """An activation without tensors that keeps its input."""

    def forward(self, x):
        self.last = x
        return x


REMEMBERS = Remembers()


class CallsAModuleElsewhere(nn.Linear):
    def forward(self, x):
        return REMEMBERS(super().forward(x))


class Registered:
    """A class whose subclasses are listed."""

    def __init_subclass__(cls):
        LOSSES.append(cls)


class DefinesAClass(nn.Linear):
    def forward(self, x):
        class Inside(Registered):
            pass

        return super().forward(x)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: KeepsInDict(4, 4), "KeepsInDict.forward may change KEPT, a dict outside of the model"),
        (lambda: KeepsDeep(4, 4), "KeepsDeep.forward may change KEPT"),
        (lambda: Appends(4, 4), "Appends.forward may change LOSSES, a list"),
        (lambda: Hands(4, 4), "Hands.forward may change LOSSES"),
        (lambda: Aliases(4, 4), "Aliases.forward may change RECENT, a deque"),
        (lambda: CountsGlobally(4, 4), "CountsGlobally.forward sets CALLS outside of itself"),
        (lambda: CountsInClass(4, 4), "CountsInClass.forward sets calls of a class"),
        (lambda: CountsInNamedClass(4, 4), "CountsInNamedClass.forward sets CountsInNamedClass.calls"),
        (lambda: SharesWithItsClass(4, 4), "may change cache, which all modules of its class share"),
        (lambda: SetsAttribute(4, 4), "SetsAttribute.forward may change SETTINGS, a Settings"),
        (lambda: CallsMethod(4, 4), "Settings.remember may change a Settings"),
        (lambda: Prints(4, 4), "Prints.forward calls print"),
        (lambda: Saves(4, 4), "Saves.forward calls .save()"),
        (lambda: GoesRound(4, 4), "note may change KEPT"),
        (lambda: GoesThroughSelf(4, 4), "note may change KEPT"),
        (GoesThroughObject, "Tracker.update may change LOSSES"),
        (GoesThroughList, "Tracker.update may change LOSSES"),
        (CallsMethodOfChild, "HasMethod.remember may change LOSSES"),
        (lambda: Decorated(4, 4), "may change LOSSES"),
        (lambda: DecoratedByTorch(4, 4), "DecoratedByTorch.forward may change LOSSES"),
        (lambda: AliasesWhatIsHeld(4, 4), "AliasesWhatIsHeld.forward may change HELD"),
        (lambda: CallsAModuleElsewhere(4, 4), "Remembers.forward may change a Remembers"),
        (lambda: DefinesAClass(4, 4), "Registered.__init_subclass__ may change LOSSES"),
    ],
)
def test_a_forward_that_writes_elsewhere_is_refused_and_not_run(make, reason, capsys):
    """No fake tensor, printed line, count or entry may reach objects outside of the model."""
    model = make()
    assert reason in refused(model, torch.randn(2, 4))
    assert (KEPT, LOSSES, len(RECENT), CALLS, SETTINGS.last, HELD) == ({}, [], 0, 0, None, {"kept": []})
    assert (CountsInClass.calls, CountsInNamedClass.calls, SharesWithItsClass.cache) == (0, 0, {})
    assert capsys.readouterr().out == ""


def test_the_model_inside_is_read_as_well():
    """Wherever it stands in the tree."""
    assert "Prints.forward calls print" in refused(nn.Sequential(nn.Linear(4, 4), Prints(4, 4)), torch.randn(2, 4))


class Quick(nn.Module):
    """An activation that holds nothing but a function."""

    def __init__(self):
        super().__init__()
        self.act = nn.functional.gelu

    def forward(self, x):
        return self.act(x)


QUICK = Quick()
MISSING = object()


class Layer:
    """A class whose subclasses are listed when they are defined, not when the model runs."""

    def __init_subclass__(cls):
        LOSSES.append(cls)

    def times(self, x, by=MISSING):
        return x if by is MISSING else x * by


@lru_cache
def scale_of(name):
    return SCALES.get(name, 1.0)


def doubled(x, by=2):
    return x * by


class Reads(nn.Linear):
    """Most forwards use constants, caches, loggers and functions of their module."""

    factor = 3.0
    names = ("half", "none")
    double = staticmethod(partial(doubled, by=2))

    def forward(self, x: torch.Tensor) -> "Pair":
        if "half" in SCALES and len(ACTIVATIONS) > 0:
            x = ACTIVATIONS["relu"](x) * SCALES["half"] * scale_of(self.names[0])
        log.warning("a batch of %d", len(x))
        parts = [SCALES[name] for name in SCALES]
        parts.append(0.0)
        y = doubled(super().forward(x)) * self.factor * SETTINGS.scale * SETTINGS.times(torch.pi)
        return Pair(y, self.helper(y) * sum(parts))

    def helper(self, y):
        self.last = y.detach()
        return QUICK(Layer().times(y))


def test_a_forward_that_only_reads_is_counted(caplog):
    """Constants in dictionaries, functions out of them, a logger, a list of its own, a module that holds nothing."""
    assert counted(Reads(4, 4), torch.randn(2, 4)).flops() > 0
    assert caplog.records == []


def test_code_without_a_source_is_refused():
    """Code without readable source is not run."""
    space = {"nn": nn}
    exec("class Made(nn.Linear):\n    def forward(self, x):\n        return super().forward(x)", space)
    assert "the source of Made.forward cannot be read" in refused(space["Made"](4, 4), torch.randn(1, 4))


def test_a_tensor_that_is_kept_where_nobody_saw_it_is_reported():
    """The count finds a side effect that the reader missed: no tensor of it may stay alive."""
    box = []

    class Sneaks(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            (lambda name: getattr(box, name))("app" + "end")(y)
            return y

    x = torch.randn(1, 4)
    assert "outside of" in refused(Sneaks(4, 4), x)
    assert box == []
    count = count_call(Sneaks(4, 4), call_of(Sneaks(4, 4), x), trust=True)
    assert count.reason == "the forward keeps a tensor of shape (1, 4) outside of the model"
    box.clear()
