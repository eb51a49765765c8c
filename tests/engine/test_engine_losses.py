"""Losses outside the model are timed, forward and backward, without being targets and with nothing attached to them."""

from typing import Any

import pytest
import torch
from attached import hooks_of
from engine_laws import Watched, check_laws, count
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss
from torch.utils.checkpoint import checkpoint

from autoprof import Phase
from autoprof.probes.losses import _calls
from autoprof.testing import FakeClock

CALL = _Loss.__call__


class CharbonnierLoss(nn.Module):
    """A loss that does not derive from torch's."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return ((x - y) ** 2 + 1e-6).sqrt().mean()


class EdgeLoss(CharbonnierLoss):
    """Derived from one of the same kind."""


class ContentAndEdge(EdgeLoss):
    """Derived from a loss, and named otherwise."""


class PairedLoss(EdgeLoss, nn.L1Loss):
    """Derived from both kinds."""


OWN = (CharbonnierLoss, EdgeLoss, ContentAndEdge, PairedLoss)


@pytest.fixture(autouse=True)
def nothing_stays_wrapped() -> Any:
    """The classes are as they were after each test."""
    yield
    assert _Loss.__call__ is CALL
    assert not any("__call__" in vars(kind) for kind in (_Loss, *OWN))
    assert set(_calls) == {_Loss}


def model() -> nn.Module:
    """Return a small model."""
    return nn.Sequential(nn.Linear(2, 3))


class _Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: FakeClock) -> Tensor:
        ctx.clock = clock
        clock.advance(7)
        return x.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.clock.advance(20)
        return grads[0].expand(4, 3), None


class SlowLoss(_Loss):
    """A loss of the user's own, of torch's class: 7 ns forward, 20 ns backward."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, x: Tensor) -> Any:
        return _Slow.apply(x, self.clock)


def test_the_times_of_a_loss_are_exact() -> None:
    """To the nanosecond, on a clock that only the loss moves; the rest of the step is nothing."""
    made, clock = model(), FakeClock()
    criterion = SlowLoss(clock)
    with Watched(made, clock=clock) as watched:
        criterion(made(torch.ones(4, 2))).backward()
        watched.step()
    frame = watched.frames[0]
    spans = {(span.name, span.phase): span.host_ns for span in frame.spans}
    assert spans["Loss/SlowLoss", Phase.FORWARD] == 7
    assert spans["Loss/SlowLoss", Phase.BACKWARD] == 20
    assert frame.phase_ns()[Phase.OTHER] == 0


def test_a_loss_made_anew_in_each_step_is_one_row() -> None:
    """``nn.MSELoss()(output, target)``: many instances, one name."""
    made = model()
    with Watched(made) as watched:
        for _ in range(3):
            nn.MSELoss()(made(torch.ones(4, 2)), torch.zeros(4, 3)).backward()
            watched.step()
    assert [count(frame, Phase.FORWARD)["Loss/MSELoss"] for frame in watched.frames] == [1, 1, 1]


def test_a_loss_that_is_computed_again_is_recompute() -> None:
    """Checkpointed together with the head, as for large vocabularies."""
    made, criterion = model(), nn.MSELoss()
    x = torch.ones(4, 2, requires_grad=True)
    with Watched(made) as watched:
        checkpoint(lambda v: criterion(made(v), torch.zeros(4, 3)), x, use_reentrant=False).backward()
        watched.step()
    frame = watched.frames[0]
    check_laws(frame)
    assert count(frame, Phase.FORWARD)["Loss/MSELoss"] == 1
    assert count(frame, Phase.RECOMPUTE)["Loss/MSELoss"] == 1


def _graphs(criterion: nn.Module, made: nn.Module, *, before: bool) -> int:
    """Compile a loss, use it in a session with pauses and after it; return how many graphs that took."""
    graphs = list[Any]()

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: criterion(x, x * 2), backend=backend, fullgraph=True)
    if before:
        compiled(torch.ones(2))
    with Watched(made) as watched:
        for _ in range(3):
            compiled(torch.ones(2))
            with watched.session.pause():
                compiled(torch.ones(2))
            watched.step()
    compiled(torch.ones(2))
    torch._dynamo.reset()
    return len(graphs)


@pytest.mark.parametrize(("kind", "before"), [(nn.MSELoss, False), (CharbonnierLoss, True)])
def test_a_compiled_loss_is_compiled_once(kind: type[nn.Module], before: bool) -> None:
    """In the session or before it: sessions, pauses and the close leave its graph valid."""
    assert _graphs(kind(), model(), before=before) == 1


@pytest.mark.parametrize("kind", OWN)
def test_a_module_that_is_called_a_loss_is_one(kind: type[nn.Module]) -> None:
    """Of a class of the program's own, or derived from one: each call is one span, forward and backward."""
    made, criterion = model(), kind()
    with Watched(made) as watched:
        criterion(made(torch.ones(4, 2)), torch.zeros(4, 3)).backward()
        watched.step()
    frame = watched.frames[0]
    check_laws(frame)
    assert count(frame, Phase.FORWARD)[f"Loss/{kind.__name__}"] == 1
    assert count(frame, Phase.BACKWARD)[f"Loss/{kind.__name__}"] == 1
    assert not any(hooks_of(criterion).values())


def test_a_model_and_its_loss_in_one_module_are_no_loss() -> None:
    """Its time is the model's; the loss inside it is seen."""

    class WithLoss(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net, self.criterion = net, CharbonnierLoss()

        def forward(self, x: Tensor, y: Tensor) -> Any:
            return self.criterion(self.net(x), y)

    made = model()
    together = WithLoss(made)
    with Watched(made) as watched:
        together(torch.ones(4, 2), torch.zeros(4, 3)).backward()
        watched.step()
    frame = watched.frames[0]
    check_laws(frame)
    names = count(frame, Phase.FORWARD)
    assert "Loss/WithLoss" not in names
    assert names["Loss/CharbonnierLoss"] == 1
