"""On any nest of modules, trained in any way, the account adds up and no backward is missed or invented."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_laws import Referee, Watched, check_laws
from hypothesis import HealthCheck, event, given, settings
from random_nests import Program, build, nests, programs
from torch import nn

from autoprof.clocks import HostClock
from autoprof.testing import FakeClock

QUICK = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def names_of(model: nn.Module) -> dict[nn.Module, str]:
    """Return what the session will call each called module."""
    return {
        module: fqn.replace(".", "/") or type(model).__name__
        for fqn, module in model.named_modules()
        if not isinstance(module, nn.ModuleList)
    }


def bare(description: Any, program: Program) -> Any:
    """Run without autoprof: the results, or the error."""
    torch.manual_seed(0)
    model = build(description)
    try:
        return program.run(model, lambda: None)
    except RuntimeError as error:
        return error


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Tell whether two lists of tensors are equal to the last bit."""
    return len(one) == len(other) and all(
        torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("clock", [lambda: FakeClock(tick_ns=1), HostClock], ids=["fake", "host"])
@given(description=nests, program=programs())
@QUICK
def test_laws_hold_on_any_nest(clock: Any, description: Any, program: Program) -> None:
    """Children and self make the parent, phases and other the step; a call that saw a gradient has one span a pass."""
    expected = bare(description, program)
    torch.manual_seed(0)
    model = build(description)
    referee = Referee(names_of(model))
    with Watched(model, clock=clock()) as watched:

        def end_step() -> None:
            watched.step()
            referee.next_step()

        if isinstance(expected, Exception):
            event(f"raises {str(expected)[:40]}")
            with pytest.raises(type(expected)):
                program.run(model, end_step)
            end_step()
        else:
            event("trains")
            assert same(program.run(model, end_step), expected)
        summary = watched.session.summary()
    for step, frame in enumerate(watched.frames):
        check_laws(frame)
        if not isinstance(expected, Exception) and not referee.blind:
            referee.check(frame, step)
    assert not summary.dropped
    if not referee.blind and not isinstance(expected, Exception):
        assert not summary.skipped
