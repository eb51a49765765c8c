"""Hooks in C and in Python: the same marks in the same order, the same failures; and everything works without C."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from hypothesis import given
from random_nests import build, nests
from random_programs import Life, Program, programs
from test_engine_laws import EXAMPLES, TooLarge, bare
from torch import nn

from autoprof._capture.hooks.module_hooks import CallHooks
from autoprof._capture.marks.native import PURE_VARIABLE, uses_extension
from autoprof._capture.marks.source_hash import source_hash
from autoprof.testing import FakeClock

needs_c = pytest.mark.skipif(not uses_extension(), reason="the hooks in C were not built")
Frames = list[list[tuple[Any, ...]]]


class Ends(Life):
    """The life of a program in a session."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def step(self) -> None:
        """End a step."""
        self._watched.step()


def frames_of(watched: Watched) -> Frames:
    """Return names, phases, nesting and times of all spans, step by step."""
    return [
        [(span.name, span.phase, span.parent, span.start_ns, span.host_ns) for span in frame.spans]
        for frame in watched.frames
    ]


def in_python(monkeypatch: pytest.MonkeyPatch, pure: bool) -> None:
    """Let sessions make their hooks in Python, or in C."""
    monkeypatch.setenv(PURE_VARIABLE, "1") if pure else monkeypatch.delenv(PURE_VARIABLE, raising=False)


@needs_c
@given(description=nests, program=programs())
@EXAMPLES
def test_any_nest_has_the_same_spans_in_both_ways(description: Any, program: Program) -> None:
    """The clock ticks at each reading, so one mark more or less, or in another order, shifts all that follow."""
    try:
        bare(description, program)
    except TooLarge:
        return

    def record() -> tuple[Frames, str]:
        torch.manual_seed(0)
        model = build(description)
        error = ""
        with Watched(model, config=everything(step="manual", flops="off")) as watched:
            try:
                program.run(model, Ends(watched))
            except RuntimeError as raised:
                error = str(raised)
            return frames_of(watched), error

    with pytest.MonkeyPatch.context() as patch:
        in_python(patch, False)
        fast = record()
        in_python(patch, True)
        assert record() == fast


class Between(nn.Module):
    """Two layers, and an operation on the output of the first: the second has the same object, or one in its place."""

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.first, self.second, self.operation = nn.Linear(2, 2), nn.Linear(2, 2), operation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = self.operation(x)
        return self.second(x)


@needs_c
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x,
        lambda x: x.mul_(2.0),
        lambda x: x.view(2, 1).mul_(2.0).view(1, 2),
        lambda x: x * 2.0,
        lambda x: x.detach_().requires_grad_(),
        lambda x: [x.exp(), x][1],
    ],
    ids=["nothing", "in place", "in place on a view", "another tensor", "detached in place", "a branch"],
)
def test_an_operation_between_two_calls_has_the_same_spans_in_both_ways(
    operation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call's input is looked up again, but where no node was made since the first one's output."""

    def record() -> Frames:
        torch.manual_seed(0)
        model = Between(operation)
        with Watched(model, config=everything(flops="off")) as watched:
            for _ in range(2):
                model(torch.ones(1, 2)).sum().backward()
                watched.step()
            return frames_of(watched)

    in_python(monkeypatch, False)
    fast = record()
    in_python(monkeypatch, True)
    assert record() == fast


@needs_c
@pytest.mark.parametrize("phases", [["forward"], ["forward", "backward"]])
def test_hooks_in_c_leak_no_memory(phases: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many blocks of memory after a thousand further steps as before them."""
    in_python(monkeypatch, False)
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Identity()), nn.ReLU())
    config = everything(flops="off", sinks={}, targets=[{"match": ".+", "name": "all", "phases": phases}])
    watched = Watched(model, config=config)
    watched.sink.write = lambda frame: None

    def steps(count: int) -> int:
        for _ in range(count):
            model(torch.ones(1, 2)).sum().backward()
            watched.step()
        watched.session.summary()
        gc.collect()
        return sys.getallocatedblocks()

    with watched:
        steps(2000)  # what keeps the last steps is full
        before = steps(100)
        assert abs(steps(1000) - before) < 200


@needs_c
def test_a_ctrl_c_during_a_reading_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not counted as a failure of ours."""
    in_python(monkeypatch, False)

    class Interrupted(FakeClock):
        strikes = False

        def read(self) -> Any:
            if self.strikes:
                self.strikes = False
                raise KeyboardInterrupt
            return super().read()

    clock, model = Interrupted(tick_ns=1), nn.Sequential(nn.Linear(2, 2))
    with Watched(model, clock=clock, config=everything(flops="off", step="manual")) as watched:
        clock.strikes = True
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(1, 2))
        assert not watched.recorder.failures


class Raising(torch.Tensor):
    """A tensor with an attribute that raises once, as a signal handler of the user's may at any time."""

    attribute = ""
    error: BaseException | None = None

    def __getattribute__(self, name: str) -> Any:
        if name == Raising.attribute and Raising.error is not None:
            error, Raising.error = Raising.error, None
            raise error
        return super().__getattribute__(name)


def raises_once(monkeypatch: pytest.MonkeyPatch, attribute: str, error: BaseException) -> torch.Tensor:
    """Return a tensor whose attribute raises this error when it is read for the first time."""
    monkeypatch.setattr(Raising, "attribute", attribute)
    monkeypatch.setattr(Raising, "error", error)
    return torch.ones(1, 2).as_subclass(Raising)


class Returns(nn.Module):
    """Return a tensor that was prepared."""

    prepared: torch.Tensor | None = None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the prepared tensor, or the input."""
        return value if self.prepared is None else self.prepared


@pytest.mark.parametrize("attribute", ["shape", "dtype", "grad_fn"])
@pytest.mark.parametrize("pure", [pytest.param(False, marks=needs_c), True])
def test_a_ctrl_c_in_an_attribute_of_an_input_reaches_the_program(
    attribute: str, pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It vanished where the hook in C compared a call of the model with the one before."""
    in_python(monkeypatch, pure)
    model = nn.Sequential(Returns())
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(3):
            model(torch.ones(1, 2))
            watched.step()
        value = raises_once(monkeypatch, attribute, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            model(value)
        assert not watched.recorder.failures
        model(torch.ones(1, 2))


@pytest.mark.parametrize("attribute", ["shape", "dtype", "grad_fn"])
@pytest.mark.parametrize("pure", [pytest.param(False, marks=needs_c), True])
def test_another_error_in_an_attribute_of_an_input_is_counted_and_never_reaches_the_program(
    attribute: str, pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the hook reads the attribute, so the program does not expect the error."""
    in_python(monkeypatch, pure)
    model = nn.Sequential(Returns())
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(3):
            model(torch.ones(1, 2))
            watched.step()
        model(raises_once(monkeypatch, attribute, ValueError("no such attribute here")))
        assert watched.recorder.failures == {"module hooks": 1}


@needs_c
def test_the_usual_call_runs_no_hook_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise both ways would be equal because both are Python. The outermost call has a gap inside, for Python."""
    in_python(monkeypatch, False)
    python_calls: list[str] = []

    def without_fallback(_before: Any, _after: Any, context: Any) -> CallHooks:
        def fallback(_owner: Any, module: nn.Module, *_args: Any) -> None:
            python_calls.append(type(module).__name__)

        return CallHooks(fallback, fallback, context)

    monkeypatch.setattr("autoprof._capture.hooks.module_hooks.CallHooks", without_fallback)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with Watched(model, config=everything(step="manual", flops="off")) as watched:
        for _ in range(4):
            model(torch.ones(1, 2)).sum().backward()
            watched.step()
    assert set(python_calls) <= {"Sequential"}
    assert len(python_calls) <= 4


def test_codes_in_c_are_those_in_python() -> None:
    """The header repeats numbers of codes.py; a build that has others is not used."""
    pytest.importorskip("autoprof._capture.marks._c")
    from autoprof._capture.marks import _c, codes

    assert {name: getattr(codes, name) for name in _c.CODES} == _c.CODES
    assert source_hash() == _c.SOURCE_HASH
