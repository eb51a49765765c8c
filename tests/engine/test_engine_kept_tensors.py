"""Variables that keep more tensors from look to look are named, with the line that adds to them."""

from __future__ import annotations

import gc
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from autoprof.probes import _kept_tensors
from autoprof.probes._kept_tensors import KeptTensors, KeptTensorsProbe


def loss_of(weight: torch.Tensor) -> torch.Tensor:
    """Return a loss whose graph has a few operations."""
    return (weight * 2).square().mean()


def look(probe: KeptTensorsProbe, step: int) -> None:
    """Look from the function that calls."""
    probe.look(sys._getframe(1), step)


def names(probe: KeptTensorsProbe) -> list[tuple[str, str]]:
    """Return the variables that grow, with their kinds."""
    return [(one.variable, one.kind) for one in probe.growing()]


def test_a_running_loss_that_keeps_each_graph_is_named_with_its_function() -> None:
    """The line is the first of the function that holds it."""
    probe, weight = KeptTensorsProbe(), torch.ones(4, requires_grad=True)
    running: Any = 0.0
    for step in range(6):
        running = running + loss_of(weight)
        look(probe, step)
    (kept,) = probe.growing()
    start = test_a_running_loss_that_keeps_each_graph_is_named_with_its_function.__code__.co_firstlineno
    assert kept == KeptTensors("running", __file__, start, "graph", kept.count)


def test_the_loss_of_the_present_step_is_not_named() -> None:
    """Its graph is as long in each step."""
    probe, weight = KeptTensorsProbe(), torch.ones(4, requires_grad=True)
    for step in range(6):
        loss = loss_of(weight)
        look(probe, step)
    assert loss.requires_grad
    assert names(probe) == []


def test_containers_that_are_filled_are_named() -> None:
    """Lists, dictionaries and queues without an end, also of pairs."""
    probe = KeptTensorsProbe()
    outputs: list[tuple[int, torch.Tensor]] = []
    by_step: dict[int, torch.Tensor] = {}
    last: deque[torch.Tensor] = deque(maxlen=2)
    for step in range(12):
        outputs.append((step, torch.ones(2)))
        by_step[step] = torch.ones(2)
        last.append(torch.ones(2))
        if step > 3:
            look(probe, step)
    assert sorted(names(probe)) == [("by_step", "tensors"), ("outputs", "tensors")]


def test_numbers_may_be_kept() -> None:
    """A list of floats costs nothing."""
    probe = KeptTensorsProbe()
    losses: list[float] = []
    for step in range(6):
        losses.append(1.0)
        look(probe, step)
    assert names(probe) == []


@dataclass
class Record:
    """What is known of one step."""

    number: int
    phases: dict[str, int]


def test_records_of_numbers_may_be_kept() -> None:
    """A list of small records, with a dictionary of numbers in each, costs nothing worth a name."""
    probe = KeptTensorsProbe()
    records: list[Record] = []
    for step in range(6):
        records.append(Record(step, {"forward": step}))
        look(probe, step)
    assert names(probe) == []


@cache
def mask(step: int) -> torch.Tensor:
    """Return a tensor that is kept for each argument."""
    return torch.ones(step + 1)


def test_a_function_with_an_unlimited_cache_is_named_with_its_line() -> None:
    """The results that ``functools.cache`` keeps are in no container of the program."""
    probe = KeptTensorsProbe()
    for step in range(6):
        mask(step)
        look(probe, step)
    (kept,) = probe.growing()
    assert (kept.variable, kept.line) == ("mask", mask.__wrapped__.__code__.co_firstlineno)


class Trainer:
    """A trainer that keeps its losses."""

    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []

    def fit(self, probe: KeptTensorsProbe) -> None:
        """Train six steps."""
        for step in range(6):
            self.losses.append(torch.ones(1))
            look(probe, step)


def test_an_attribute_of_the_object_that_trains_is_named_also_after_it_has_returned() -> None:
    """Looks that follow find other functions."""
    probe = KeptTensorsProbe()
    Trainer().fit(probe)
    look(probe, 6)
    assert names(probe) == [("self.losses", "tensors")]
    assert probe.growing()[0].line == Trainer.__init__.__code__.co_firstlineno


def test_a_running_loss_in_a_dictionary_is_named_by_its_key() -> None:
    """As the results of a validation without ``no_grad`` are."""
    probe, weight, results = KeptTensorsProbe(), torch.ones(4, requires_grad=True), dict[str, Any](mse=0.0, batches=0)
    for step in range(6):
        results["mse"] = results["mse"] + loss_of(weight)
        results["batches"] += 1
        look(probe, step)
    assert names(probe) == [("results['mse']", "graph")]


def test_a_graph_of_many_operations_is_followed_no_further_than_the_limit() -> None:
    """A chain of 20,000 operations in one step is measured alike in each."""
    probe, weight = KeptTensorsProbe(), torch.ones(1, requires_grad=True)
    for step in range(5):
        value = weight
        for _ in range(20_000):
            value = value + 1
        look(probe, step)
    assert names(probe) == []


class Layer(torch.nn.Linear):
    """A layer that remembers its inputs."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.history: list[torch.Tensor] = []


class Remembering(Layer):
    """A layer that adds to them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input."""
        self.history.append(x)
        return x


def other(probe: KeptTensorsProbe, net: torch.nn.Module, step: int) -> None:
    """Look from a function with another name for the model."""
    assert net is not None
    look(probe, step)


def test_what_one_function_and_another_one_hold_is_the_same() -> None:
    """A look at the end of the run finds other functions; the line is that of the layer's class."""
    probe, model = KeptTensorsProbe(), torch.nn.Sequential(Remembering())
    for _ in range(3):
        model(torch.ones(1))
    other(probe, model, 3)
    for _ in range(9):
        model(torch.ones(1))
    look(probe, 12)
    (kept,) = probe.growing()
    assert (kept.variable, kept.line) == ("model.0.history", Layer.__init__.__code__.co_firstlineno)


SEEN: list[object] = []
"""A list of the module, which a test fills."""


def test_whatever_grows_is_named_wherever_it_is() -> None:
    """In an object of the program's, in a layer of a model, and in a module; of any elements but numbers."""
    probe, trainer, model = KeptTensorsProbe(), Trainer(), torch.nn.Sequential(Layer())
    for step in range(6):
        trainer.losses.append(torch.ones(1))
        model[0].history.append(torch.ones(1))
        SEEN.append(lambda: None)
        look(probe, step)
    SEEN.clear()
    assert sorted(names(probe)) == [("SEEN", "tensors"), ("model.0.history", "tensors"), ("trainer.losses", "tensors")]


def record(curves: dict[str, list[torch.Tensor]], step: int) -> None:
    """Add to one of three lists."""
    curves["abc"[step % 3]].append(torch.ones(1))


def test_lists_in_a_dictionary_are_counted_together() -> None:
    """None of the lists grows in each step."""
    probe, curves = KeptTensorsProbe(), defaultdict[str, list[torch.Tensor]](list)
    for step in range(18):
        record(curves, step)
        look(probe, step)
    (kept,) = probe.growing()
    assert (kept.variable, kept.count) == ("curves", 18)


@pytest.mark.parametrize(("every", "named"), [(3, True), (8, False)])
def test_a_list_that_grows_in_each_third_step_is_named(every: int, named: bool) -> None:
    """Such as what the forwards of validation leave; a list of checkpoints is longer once in a while."""
    probe, model = KeptTensorsProbe(), torch.nn.Sequential(Layer())
    for step in range(48):
        model[0].history += [torch.ones(1)] if step % every == 0 else []
        look(probe, step)
    assert bool(probe.growing()) is named


def tracker() -> Callable[[], None]:
    """Return a function that alone knows a list."""
    tracked: list[torch.Tensor] = []

    def track() -> None:
        tracked.append(torch.ones(1))

    return track


def test_a_list_in_the_closure_of_a_function_is_named_with_that_function() -> None:
    """Also where the function is in a list of callbacks."""
    probe, callbacks = KeptTensorsProbe(), [tracker()]
    for step in range(8):
        callbacks[0]()
        look(probe, step)
    (kept,) = probe.growing()
    assert (kept.variable, kept.line) == ("tracked", tracker.__code__.co_firstlineno + 4)


def remember(optimizer: torch.optim.Optimizer) -> None:
    """Keep tensors beside the learning rate."""
    optimizer.param_groups[0].setdefault("past", []).append(torch.ones(1))


def test_a_list_in_the_parameter_groups_of_an_optimizer_is_named() -> None:
    """An optimizer is looked into, although its class is not the program's."""
    probe, optimizer = KeptTensorsProbe(), torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)
    for step in range(8):
        remember(optimizer)
        look(probe, step)
    (kept,) = probe.growing()
    assert (kept.variable, kept.file, kept.line) == ("optimizer.param_groups", __file__, 0)


def test_a_look_costs_as_much_with_thousands_of_modules_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose a module is, is asked again only when there are more modules."""
    asked: list[str] = []

    def owner(file: str) -> str:
        asked.append(file)
        return "library" if "site-packages" in file else "user"

    monkeypatch.setattr(_kept_tensors, "file_owner", owner)
    for number in range(3000):
        module = ModuleType(f"other{number}")
        module.__file__ = f"/site-packages/other{number}.py"
        monkeypatch.setitem(sys.modules, module.__name__, module)
    probe = KeptTensorsProbe()
    probe.look(None, 0)
    assert len(asked) > 3000
    asked.clear()
    own = ModuleType("own")
    own.__file__ = "/home/own.py"
    own.kept = []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own", own)
    for step in range(8):
        own.kept.append(torch.ones(1))  # type: ignore[attr-defined]
        probe.look(None, step)
    assert "/site-packages/other1.py" not in asked
    assert names(probe) == [("own.kept", "tensors")]


def test_a_look_does_not_start_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting takes longer than a look, which then uses up the budget, and a short run gets no second one."""
    enabled: list[bool] = []

    class Noting(ModuleType):
        @property
        def __file__(self) -> str:  # type: ignore[override]
            enabled.append(gc.isenabled())
            return "/program/noting.py"

    monkeypatch.setitem(sys.modules, "noting", Noting("noting"))
    assert gc.isenabled()
    KeptTensorsProbe().look(None, 0)
    assert enabled
    assert not any(enabled)
    assert gc.isenabled()


class Cached(Dataset[torch.Tensor]):
    """A data set that keeps each sample it has made."""

    def __init__(self) -> None:
        self.done: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 100

    def __getitem__(self, at: int) -> torch.Tensor:
        return self.done.setdefault(at, torch.ones(1))


def test_a_cache_in_a_data_set_is_named_through_the_loader_and_the_subset() -> None:
    """Their classes are torch's."""
    probe, loader = KeptTensorsProbe(), DataLoader(Subset(Cached(), range(20)))
    for step, _ in enumerate(loader):
        look(probe, step)
    (kept,) = probe.growing()
    assert (kept.variable, kept.line) == ("loader.dataset.dataset.done", Cached.__init__.__code__.co_firstlineno)


class Augment:
    """An object that keeps what it has made."""

    def __init__(self) -> None:
        self.done: dict[int, torch.Tensor] = {}


def test_an_object_of_the_script_is_known_after_the_script_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has removed the file of its module by then. The name is the one that the script has for it."""
    script = ModuleType("__main__")
    script.__file__ = "/home/script.py"
    monkeypatch.setitem(sys.modules, "__main__", script)
    monkeypatch.setattr(Augment, "__module__", "__main__")
    script.augment = augment = Augment()  # type: ignore[attr-defined]
    augment.done[0] = torch.ones(1)
    probe = KeptTensorsProbe()
    probe.look(None, 0)
    del script.__file__
    augment.done.update({at: torch.ones(1) for at in range(8)})
    probe.look(None, 8)
    assert names(probe) == [("augment.done", "tensors")]


class Registry(dict[str, object]):
    """A mapping that imports what it is asked for, as the automatic classes of transformers."""

    def _load(self, *_args: object) -> Any:
        raise ImportError("not installed")

    keys = values = items = __iter__ = __getitem__ = __len__ = _load


REGISTRY = Registry(a=torch.ones(1))


def test_a_lazy_mapping_is_not_asked_for_what_it_holds() -> None:
    """Its methods may import a whole package between two steps."""
    probe = KeptTensorsProbe()
    for step in range(6):
        look(probe, step)
    assert names(probe) == []


class _Closed:
    """An object whose attributes cannot be asked for."""

    @property
    def __dict__(self) -> Any:
        raise AttributeError("__dict__")


def test_an_object_that_does_not_show_its_attributes_is_passed_over() -> None:
    """Classes in C may have a dictionary and no name for it."""
    probe, closed, kept = KeptTensorsProbe(), _Closed(), []
    for step in range(8):
        kept.append(torch.ones(1))
        look(probe, step)
    assert closed
    assert [one.variable for one in probe.growing()] == ["kept"]
