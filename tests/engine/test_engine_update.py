"""The optimizer's phase: clipping, ``zero_grad``, AMP and the schedule beside the update, and totals that add up."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, count
from torch import nn
from torch.nn.utils import clip_grad, clip_grad_norm_, clip_grad_value_  # bound before any session, as users do

from autoprof import Phase
from autoprof.base.process import replace
from autoprof.testing import FakeClock

CELLS = [function.__closure__[0].cell_contents for function in (clip_grad_norm_, clip_grad_value_)]


@pytest.fixture(autouse=True)
def nothing_stays_wrapped(nothing_compiled: None) -> Any:
    """Every function of torch's is its own again after each test."""
    yield
    assert [function.__closure__[0].cell_contents for function in (clip_grad_norm_, clip_grad_value_)] == CELLS
    assert not replace.held


def mlp() -> nn.Sequential:
    """Return a small model."""
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def step(model: nn.Module, optimizer: Any, clip: Callable[[Any], Any] | None = None) -> None:
    """Train once."""
    optimizer.zero_grad()
    model(torch.ones(2, 2)).sum().backward()
    if clip is not None:
        clip(model.parameters())
    optimizer.step()


@pytest.mark.parametrize(
    ("name", "clip"),
    [
        ("clip_grad_norm_", lambda parameters: clip_grad_norm_(parameters, 0.1)),
        ("clip_grad_norm_", lambda parameters: clip_grad.clip_grad_norm_(parameters, 0.1)),
        ("clip_grad_value_", lambda parameters: clip_grad_value_(parameters, 0.1)),
    ],
)
def test_clipping_is_seen_however_it_was_imported(name: str, clip: Callable[[Any], Any]) -> None:
    """By the module, by the package, and by a name bound before autoprof came."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Watched(model, optimizer=optimizer) as watched:
        step(model, optimizer, clip)
        watched.step()
    frame = watched.frames[0]
    check_laws(frame)
    expected = {"Optimizer": 1, "Optimizer/zero_grad": 1, f"Optimizer/{name}": 1}
    assert count(frame, Phase.OPTIMIZER) == expected


def test_the_phase_is_the_sum_of_its_parts_to_the_nanosecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clipping takes 7 ns and the update 11: no name's total has another's in it, and other has nothing left."""
    model, clock = mlp(), FakeClock()
    inner = getattr(clip_grad, "_get_total_norm", None)
    if inner is None:
        pytest.skip("needs torch 2.6: before, clipping is one function, with nothing inside that could be slow")

    def slow(*args: Any, **kwargs: Any) -> torch.Tensor:
        clock.advance(7)
        return inner(*args, **kwargs)

    class Slow(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            clock.advance(11)

    monkeypatch.setattr(clip_grad, "_get_total_norm", slow)
    optimizer = Slow(model.parameters(), {})
    with Watched(model, clock=clock, optimizer=optimizer) as watched:
        step(model, optimizer, lambda parameters: clip_grad_norm_(parameters, 0.1))
        watched.step()
    frame = watched.frames[0]
    own = {span.name: span.host_ns for span in frame.spans if span.phase is Phase.OPTIMIZER}
    assert own == {"Optimizer": 11, "Optimizer/clip_grad_norm_": 7, "Optimizer/zero_grad": 0}
    assert frame.phase_ns()[Phase.OPTIMIZER] == 18 == frame.step_ns


def test_a_models_own_zero_grad_counts_and_a_stranger_optimizers_does_not() -> None:
    """``model.zero_grad()``; with ``optimizer=`` another optimizer's is none of this step's."""
    model, other = mlp(), mlp()
    optimizer, stranger = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, other))
    with Watched(model, optimizer=optimizer) as watched:
        model.zero_grad()
        optimizer.zero_grad()
        stranger.zero_grad()
        watched.step()
    assert count(watched.frames[0], Phase.OPTIMIZER) == {"Optimizer/zero_grad": 2}


def test_the_gradient_scaler_and_the_schedule_belong_to_the_optimizer() -> None:
    """AMP: ``unscale_``, and ``scaler.step`` around the update; the learning rate's schedule."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu")
    with Watched(model, optimizer=optimizer) as watched:
        scaler.scale(model(torch.ones(2, 2)).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        watched.step()
    frame = watched.frames[0]
    check_laws(frame)
    names = ("Optimizer", "Optimizer/unscale_", "Optimizer/scaler.step", "Optimizer/scheduler.step")
    assert count(frame, Phase.OPTIMIZER) == dict.fromkeys(names, 1)
    spans = {span.name: span for span in frame.spans}
    assert spans["Optimizer"].parent == frame.spans.index(spans["Optimizer/scaler.step"])


@pytest.mark.filterwarnings("ignore")
def test_clipping_is_not_timed_any_more_once_torch_has_compiled() -> None:
    """A graph that clipping was traced into is guarded by the function; a wrapper would have it compiled anew."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Watched(model, optimizer=optimizer) as watched:
        step(model, optimizer, lambda parameters: clip_grad_norm_(parameters, 0.1))
        watched.step()
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(1))
        step(model, optimizer, lambda parameters: clip_grad_norm_(parameters, 0.1))
        watched.step()
    torch._dynamo.reset()
    clips = [count(frame, Phase.OPTIMIZER)["Optimizer/clip_grad_norm_"] for frame in watched.frames]
    assert clips == [1, 0]
