"""Bytes of a model and its optimizers, by name, counted at the optimizer's steps."""

import gc
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import autoprof
from autoprof.base.summary import MemoryRow, Summary
from autoprof.capture.hooks.optimizer_hooks import OptimizerHooks
from autoprof.capture.memory import Footprint
from autoprof.session.account import Part
from tests.accounts import FakeRun, unlimited


@contextmanager
def followed(footprint: Footprint) -> Iterator[None]:
    """Count at optimizers' steps, as a session does."""
    hooks = OptimizerHooks(after=footprint.stepped)
    hooks.attach()
    yield
    hooks.detach()


def counted(
    model: nn.Module, optimizers: list[Any], names: dict[str, nn.Module], steps: int = 1
) -> Mapping[str | None, MemoryRow]:
    footprint = Footprint(model, names.items(), unlimited())
    with followed(footprint):
        for _ in range(steps):
            model(torch.randn(2, 4)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert footprint.failure is None
    return footprint.rows()


def test_parameters_gradients_and_state_are_exact() -> None:
    """Adam's state is two tensors of the parameters' size and a count for each."""
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False))
    found = counted(model, [torch.optim.Adam(model.parameters())], {"first": model[0], "second": model[1]})
    assert found["first"] == MemoryRow("first", 128, 0, 128, 2 * 128 + 4)
    assert found["second"] == MemoryRow("second", 64, 0, 64, 2 * 64 + 4)
    assert found[None] == MemoryRow(None, 192, 0, 192, 2 * 192 + 8)


def test_tied_weights_count_once_in_all_and_in_each_name() -> None:
    """Both names hold the weight; the model holds it once."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    found = counted(model, [torch.optim.SGD(model.parameters(), momentum=0.9, lr=0.1)], {"a": model[0], "b": model[1]})
    assert found == {name: MemoryRow(name, 64, 0, 64, 64) for name in (None, "a", "b")}


@pytest.mark.parametrize(
    ("trained", "frozen", "untrained"),
    [("head", False, ("body",)), ("head", True, ()), ("all", False, ()), ("body.0", False, ("body.1", "head"))],
)
def test_modules_whose_gradients_no_optimizer_uses_are_known(
    trained: str, frozen: bool, untrained: tuple[str, ...]
) -> None:
    """The outermost ones of which no parameter changes; one without gradients is not among them."""
    body = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).requires_grad_(not frozen)
    model = nn.Sequential(OrderedDict(body=body, head=nn.Linear(4, 2)))
    module = model if trained == "all" else model.get_submodule(trained)
    footprint = Footprint(model, [], unlimited())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with followed(footprint):
        for _ in range(3):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
    assert footprint.untrained() == untrained


def test_modules_of_a_model_that_the_program_drops_are_those_of_the_last_look() -> None:
    """The main function of a program returns before the run is closed."""

    def main() -> Footprint:
        model = nn.Sequential(OrderedDict(body=nn.Linear(4, 4), head=nn.Linear(4, 2)))
        footprint = Footprint(model, [], unlimited())
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
        with followed(footprint):
            for _ in range(3):
                model(torch.randn(2, 4)).sum().backward()
                optimizer.step()
                footprint.untrained(final=False)
        return footprint

    assert main().untrained() == ("body",)


def test_an_optimizer_that_begins_later_may_train_what_was_untrained() -> None:
    """The program drops the model before it is looked at again."""

    def main() -> Footprint:
        model = nn.Sequential(OrderedDict(body=nn.Linear(4, 4), head=nn.Linear(4, 2)))
        footprint = Footprint(model, [], unlimited())
        with followed(footprint):
            for part in (model.head, model.body):
                optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
                for _ in range(3):
                    model(torch.randn(2, 4)).sum().backward()
                    optimizer.step()
                    if part is model.head:
                        footprint.untrained(final=False)
        return footprint

    assert main().untrained() == ()


@pytest.mark.parametrize(("frozen", "trained"), [(False, False), (True, False), (False, True)])
def test_a_loss_whose_gradients_no_optimizer_uses_is_known(frozen: bool, trained: bool) -> None:
    """The network of a perceptual loss, and not that of a loss that learns."""
    model, loss = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).requires_grad_(not frozen)
    footprint = Footprint(model, [], unlimited())
    losses = {}
    footprint.watch(losses)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, loss)[: 1 + trained]]
    with followed(footprint):
        for _ in range(3):
            loss(model(torch.randn(2, 4))).sum().backward()
            losses["Loss/Perceptual"] = weakref.ref(loss)  # it is called first in a step that is recorded
            for optimizer in optimizers:
                optimizer.step()
    assert footprint.untrained() == (() if frozen or trained else ("Loss/Perceptual",))


def test_before_an_optimizer_steps_gradients_and_state_are_not_known() -> None:
    """Parameters are."""
    model = nn.Linear(4, 4, bias=False)
    assert Footprint(model, [], unlimited()).rows() == {None: MemoryRow(None, 64, 0)}


def test_frozen_parameters_have_neither() -> None:
    """A name of frozen parameters holds only these."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[0].requires_grad_(False)
    optimizer = torch.optim.Adam([model[1].weight])
    found = counted(model, [optimizer], {"frozen": model[0], "trained": model[1]})
    assert found["frozen"] == MemoryRow("frozen", 64, 0, 0, 0)
    assert found["trained"].gradient_bytes == 64


def test_sparse_gradients_count_their_values() -> None:
    """Of an embedding with a thousand rows, the rows that were used."""
    model = nn.Sequential(nn.Embedding(1000, 4, sparse=True))
    footprint = Footprint(model, [], unlimited())
    optimizer = torch.optim.SparseAdam(model.parameters())
    with followed(footprint):
        model(torch.tensor([1, 2, 3])).sum().backward()
        optimizer.step()
    assert footprint.rows()[None].gradient_bytes == 3 * 4 * 4 + 3 * 8


def test_models_that_train_in_turn_keep_the_fullest_moment() -> None:
    """Of a generator and a critic each steps when only its gradients are there."""
    model = nn.ModuleDict({"g": nn.Linear(4, 8, bias=False), "c": nn.Linear(4, 2, bias=False)})
    footprint = Footprint(model, model.items(), unlimited())
    pair = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model.values()]
    with followed(footprint):
        for part, optimizer in zip(model.values(), pair, strict=True):
            part(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert footprint.rows()[None].gradient_bytes == 128


def test_state_that_grows_is_counted_again_at_the_end() -> None:
    """A group added later has its state in the last count."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    footprint = Footprint(model, [], unlimited())
    with followed(footprint):
        for _ in range(3):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
        optimizer.add_param_group({"params": model[1].parameters()})
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    assert footprint.rows()[None].state_bytes == 128


def test_counting_stops_after_the_first_steps() -> None:
    """A long run pays for a handful of counts, however many steps and optimizers it has."""
    model = nn.Linear(4, 4)
    footprint = Footprint(model, [], unlimited())
    counts = 0
    count = footprint._count

    def counting(**given: Any) -> None:
        nonlocal counts
        counts += 1
        count(**given)

    footprint._count = counting  # type: ignore[method-assign]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(20)]
    with followed(footprint):
        for _ in range(10):
            model(torch.randn(2, 4)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
    assert counts == 16


def test_a_tensor_that_tells_no_size_ends_the_count_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training goes on, and the table says why it has no figure."""

    def refuse(_value: Any) -> Any:
        raise RuntimeError("no size")

    monkeypatch.setattr("autoprof.capture.memory.footprint.extents", refuse)
    model = nn.Linear(4, 4)
    summary = run(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert summary.steps + summary.warmup_steps == 6
    assert summary.memory_table == (MemoryRow(None),)
    assert summary.unmeasured["parameters"] == "RuntimeError: no size"


def test_a_count_does_not_start_the_garbage_collector() -> None:
    """It makes thousands of objects in a step of the user's, and frees all of them."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(1_000)))
    footprint = Footprint(model, [("all", model)], unlimited())
    footprint.rows()
    gc.collect()
    collected: list[str] = []
    gc.callbacks.append(lambda phase, _info: collected.append(phase))
    try:
        footprint.rows(recount=True)
    finally:
        gc.callbacks.pop()
    assert not collected


def test_no_gradient_is_kept_alive() -> None:
    """A gradient that the loop drops is gone, also after it was counted."""
    model = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autoprof.instrument(model, {"sinks": {}}, optimizer=optimizer) as session:
        model(torch.randn(2, 4)).sum().backward()
        assert model.weight.grad is not None
        gradient = weakref.ref(model.weight.grad)
        optimizer.step()
        optimizer.zero_grad()
        session.step()
        gc.collect()
        assert gradient() is None


# In a session.


def run(model: nn.Module, optimizer: Any, *, given: bool = True, **config: Any) -> Summary:
    settings = {"sinks": {}, "flops": "off", "sample": {"warmup": 0, "budget": None}, **config}
    with autoprof.instrument(model, settings, optimizer=optimizer if given else None) as session:
        for _ in range(6):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    return session.summary()


def test_the_summary_has_the_whole_run_and_then_the_names() -> None:
    """The largest name first; columns that the CPU cannot measure are empty, with a reason."""
    model = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 16, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    summary = run(model, optimizer, targets=[{"match": ".+"}])
    assert summary.memory_table == (
        MemoryRow(None, 160, 0, 160, 160),
        MemoryRow("1", 128, 0, 128, 128),
        MemoryRow("0", 32, 0, 32, 32),
    )
    assert set(summary.unmeasured) == {"activations", "allocated, reserved and their peaks"}
    assert Summary.from_dict(summary.to_dict()) == summary


def test_an_optimizer_that_was_not_given_is_found() -> None:
    """The first that trains a parameter of the model; another model's is none of ours."""
    model, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
    beside = torch.optim.Adam(other.parameters())
    other(torch.randn(2, 4)).sum().backward()
    settings = {"sinks": {}, "targets": [{"match": ".*"}]}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with autoprof.instrument(model, settings) as session:
        for _ in range(6):
            model(torch.randn(2, 4)).sum().backward()
            beside.step()
            optimizer.step()
            session.step()
    assert session.summary().memory_table[0] == MemoryRow(None, 64, 0, 64, 64)


def test_an_optimizer_is_known_from_its_first_step_also_where_nothing_is_counted() -> None:
    """A count of thousands of parameters waits until the run pays for it; the optimizer's settings are known before."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(100)))
    footprint = Footprint(model, [("", model)], FakeRun().account.part(Part.FOOTPRINT))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with followed(footprint):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    assert footprint.optimizers() == [optimizer]
    assert footprint.rows()[None].gradient_bytes is None
