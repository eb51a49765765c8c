"""Backward and recompute are rebuilt from the marks of nodes: each call its own span, in its place."""

import threading
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, count, everything, tree
from torch import Tensor, nn

from autoprof import Phase, span, timed
from autoprof.testing import FakeClock

CHILDREN = everything(targets=[{"match": ".+"}])
BACKWARD = (Phase.BACKWARD,)


class Named(nn.Module):
    """Children by name, run in order."""

    def __init__(self, **children: nn.Module) -> None:
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x: Tensor) -> Tensor:
        for child in self.children():
            x = child(x)
        return x


def linear() -> nn.Module:
    """Return a layer."""
    return nn.Linear(2, 2)


def data(grad: bool = True) -> Tensor:
    """Return an input whose node is older than the model's."""
    return torch.ones(1, 2, requires_grad=grad) * 1.0


class Opaque:
    """An object of no known kind that holds a tensor, and itself."""

    def __init__(self, value: Tensor) -> None:
        self.value, self.itself = value, self


@pytest.mark.parametrize(
    "wrap",
    [Opaque, lambda x: {x}, lambda x: [[[[[[[[x]]]]]]]], lambda x: [None] * 300 + [Opaque(x)]],
    ids=["object", "set", "deep", "long"],
)
def test_a_tensor_is_found_wherever_an_output_hides_it(wrap: Any) -> None:
    """In the attributes of an object, in a set, deep inside of lists, behind much else."""

    class Hides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[Tensor] = []

        def forward(self, x: Tensor) -> Any:
            self.found.append(x * 2)
            return wrap(self.found[-1])

    model = Named(a=linear(), hides=Hides())
    with Watched(model, config=CHILDREN) as watched:
        model(data())
        model.get_submodule("hides").found.pop().sum().backward()
        watched.step()
        summary = watched.session.summary()
    assert count(watched.frames[0], Phase.BACKWARD) == {"a": 1, "hides": 1}
    assert not summary.skipped


def test_only_the_wanted_phases_become_spans() -> None:
    """A rule that asks for backward alone gets backward alone, and what it needs is recorded all the same."""
    model = Named(a=linear(), b=linear())
    config = everything(targets=[{"match": "a", "phases": ["backward"]}, {"match": "b", "phases": ["forward"]}])
    with Watched(model, config=config) as watched:
        model(data()).sum().backward()
        watched.step()
    check_laws(watched.frames[0])
    assert tree(watched.frames[0]) == ["b forward", "a backward"]


def test_a_graph_of_an_earlier_step_is_charged_to_the_step_that_runs_it() -> None:
    """Each backward in the step it ran in, under the names of the step it was made in."""
    model = Named(a=Named(x=linear()), b=linear())
    with Watched(model, config=CHILDREN) as watched:
        first = model(data()).sum()
        watched.step()
        second = model(data()).sum()
        watched.step()
        first.backward()
        second.backward()
        watched.step()
        summary = watched.session.summary()
    frame = watched.frames[2]
    check_laws(frame)
    assert tree(frame) == ["b backward", "a backward", "  a/x backward"] * 2
    assert not summary.skipped


def test_a_graph_older_than_the_history_is_counted_as_unmatched() -> None:
    """What cannot be named any more is said, not invented."""
    model = Named(a=linear())
    with Watched(model, config=CHILDREN) as watched:
        loss = model(data()).sum()
        for _ in range(40):
            model(data())
            watched.step()
        loss.backward()
        watched.step()
        summary = watched.session.summary()
    assert count(watched.frames[-1], Phase.BACKWARD) == {}
    assert summary.skipped["marks without a counterpart"] >= 1


class Boom(Exception):
    """An error of the user's."""


class FailsBackward(torch.autograd.Function):
    """Raise in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise Boom


class Mine(nn.Module):
    """A module whose backward fails."""

    fail = True

    def forward(self, x: Tensor) -> Tensor:
        return FailsBackward.apply(x) if self.fail else x * 1


def test_what_follows_a_failed_backward_in_its_step_is_not_inside_it() -> None:
    """The next fetch and the next forward end the dead pass."""
    mine = Mine()
    model = Named(a=linear(), b=mine)
    with Watched(model) as watched:
        loader = iter(watched.session.loader([1, 2]))
        next(loader)
        with pytest.raises(Boom):
            model(data()).sum().backward()
        next(loader)
        mine.fail = False
        model(data()).sum().backward()
        watched.step()
    (frame,) = watched.frames
    check_laws(frame)
    assert [s.parent for s in frame.spans if s.name in ("Data", "Named") and s.phase is not Phase.BACKWARD] == [
        None
    ] * 4
    assert count(frame, Phase.BACKWARD) == {"Named": 2, "b": 2, "a": 1}


def test_what_another_thread_does_is_no_part_of_the_steps_account() -> None:
    """Phases and other are those of the training thread; the other thread's rows are beside it."""
    clock = FakeClock()
    model = Named(a=linear())
    with Watched(model, clock=clock) as watched:

        def beside() -> None:
            with span("prefetch"):
                clock.advance(1_000)

        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        with span("mine"):
            clock.advance(10)
        watched.step()
    (frame,) = watched.frames
    assert frame.phase_ns() == {Phase.USER: 10, Phase.OTHER: 1_000}
    assert {s.name: s.lane for s in frame.spans} == {"prefetch": 1, "mine": 0}
    assert frame.duration_ns == 1_010


def test_spans_and_timed_functions_nest_with_modules() -> None:
    """Inside modules, around them, and around backward."""

    @timed("helper")
    def helper(x: Tensor) -> Tensor:
        return x * 2

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = linear()

        def forward(self, x: Tensor) -> Tensor:
            with span("inside"):
                return helper(self.a(x))

    model = Model()
    with Watched(model) as watched:
        with span("train"):
            loss = model(data()).sum()
            with span("around backward"):
                loss.backward()
        watched.step()
    check_laws(watched.frames[0])
    assert tree(watched.frames[0]) == [
        "train user",
        "  Model forward",
        "    inside user",
        "      a forward",
        "      helper user",
        "  around backward user",
        "    Model backward",
        "      a backward",
    ]


def test_a_step_that_ends_inside_a_backward_closes() -> None:
    """A step boundary in a tensor hook: what is open ends with the step, the rest goes on in the next."""
    model = Named(a=linear(), b=linear())
    with Watched(model) as watched:
        y = model.get_submodule("a")(data())
        y.register_hook(lambda g: watched.step())
        model.get_submodule("b")(y).sum().backward()
        watched.step()
    for frame in watched.frames:
        check_laws(frame)
    assert sum((count(frame, Phase.BACKWARD) for frame in watched.frames), count(watched.frames[0], Phase.COMM)) == {
        "a": 1,
        "b": 1,
    }
