"""On any nest of modules, trained in any way, the account adds up and no backward is missed or invented.

The examples are the same in every run. ``AUTOPROF_LAWS=5000`` (``make laws``) draws so many new ones instead.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from engine_laws import Referee, Watched, check_laws
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st
from random_nests import build, nests
from random_programs import Life, Program, programs
from shaken_device import shaken_clock
from torch import nn

from autoprof.base.frame import UNTIMED_LANE
from autoprof.base.stats import UNTIMED_STEPS
from autoprof.devices import HostClock
from autoprof.resolve.device import ACROSS_PAUSE, NO_DEVICE_TIME, TWO_STREAMS
from autoprof.testing import FakeClock

LONG = int(os.environ.get("AUTOPROF_LAWS", "0"))
EXAMPLES = settings(
    max_examples=LONG or 200,
    derandomize=not LONG,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
UNTIMED = (TWO_STREAMS, ACROSS_PAUSE, NO_DEVICE_TIME)
CALLS = 1_000
"""Module calls of one program; nests that call each other several times would else grow without end."""
CLOCKS = {"fake": lambda _seed: FakeClock(tick_ns=1), "host": lambda _seed: HostClock(), "device": shaken_clock}


def names_of(model: nn.Module) -> dict[nn.Module, str]:
    """Return what the session will call each called module."""
    return {
        module: fqn.replace(".", "/") or type(model).__name__
        for fqn, module in model.named_modules()
        if not isinstance(module, nn.ModuleList)
    }


class TooLarge(Exception):
    """The nest multiplies: what it calls of what it calls, again and again."""


def bare(description: Any, program: Program) -> Any:
    """Run without autoprof: the results, or the error. Raises ``TooLarge``."""
    torch.manual_seed(0)
    model = build(description)
    calls = 0

    def count(*_args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > CALLS:
            raise TooLarge

    for module in model.modules():
        module.register_forward_pre_hook(count)
    try:
        return program.run(model, Life())
    except RuntimeError as error:
        return error


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Tell whether two lists of tensors are equal to the last bit."""
    return len(one) == len(other) and all(
        torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(one, other, strict=True)
    )


class Observed(Life):
    """Run a program in a session; the referee records the same events."""

    def __init__(self, watched: Watched, referee: Referee) -> None:
        self.watched, self.referee = watched, referee

    def end_step(self) -> None:
        self.watched.step()
        self.referee.next_step()

    @contextmanager
    def pause(self) -> Iterator[None]:
        with self.watched.session.pause():
            self.referee.paused = True
            yield
        self.referee.paused = False


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
@given(description=nests, program=programs(), seed=st.integers(0, 2**20))
@EXAMPLES
def test_laws_hold_on_any_nest(clock: Any, description: Any, program: Program, seed: int) -> None:
    """Children and self make the parent, phases and other the step; a call that saw a gradient has one span a pass."""
    try:
        expected = bare(description, program)
    except TooLarge:
        reject()
    torch.manual_seed(0)
    model = build(description)
    referee = Referee(names_of(model))
    with Watched(model, clock=clock(seed)) as watched:
        life = Observed(watched, referee)
        if isinstance(expected, Exception):
            event(f"raises {str(expected)[:40]}")
            with pytest.raises(type(expected)):
                program.run(model, life)
            life.end_step()
        else:
            event("trains")
            assert same(program.run(model, life), expected)
    summary = watched.session.summary()
    for step, frame in enumerate(watched.frames):
        check_laws(frame)
        if not isinstance(expected, Exception) and not referee.blind:
            referee.check(frame, step)
    event(f"{min(len(referee.received[0]), 3)} or more backwards in the first step")
    event(f"{min(len({span.lane for frame in watched.frames for span in frame.spans}), 4)} or more lanes")
    assert not summary.dropped
    if not referee.blind and not isinstance(expected, Exception):
        untimed = sum(span.lane == UNTIMED_LANE for frame in watched.frames for span in frame.spans)
        assert sum(summary.skipped.get(reason, 0) for reason in UNTIMED) == untimed
        assert not set(summary.skipped) - {*UNTIMED, UNTIMED_STEPS}
