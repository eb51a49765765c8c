"""The work of a thread from its stack: phase, module, collective, line of the program."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from autoprof.base.process.replace import call_listeners
from autoprof.session.flight.stack import Activity, read_activity


class Looking(nn.Module):
    """A module that looks at its own stack in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Activity] = []
        self.names = {id(self): "net/looking"}

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(read_activity(sys._getframe(), self.names))
        return x * 2


def look(names: dict[int, str] | None = None) -> Activity:
    return read_activity(sys._getframe(), names or {})


def test_a_forward_has_its_module_and_line() -> None:
    """The innermost module with a name, and the innermost line of the program."""
    made = Looking()
    nn.Sequential(made)(torch.ones(1))
    (activity,) = made.seen
    assert (activity.phase, activity.module, activity.collective) == ("forward", "net/looking", None)
    assert activity.site is not None
    assert activity.site.endswith(" forward")
    assert Path(__file__).name in activity.site
    assert activity.stack[0] == activity.site
    assert any(line.startswith("torch/nn/modules/") for line in activity.stack)


def test_a_hook_in_backward_is_in_backward() -> None:
    """Its line is the hook's; the engine is not innermost."""
    seen: list[Activity] = []
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda gradient: seen.append(look()))
    (x * 2).sum().backward()
    assert (seen[0].phase, seen[0].in_engine) == ("backward", False)


def test_an_optimizer_step_and_a_fetch_have_their_phases() -> None:
    """By the files of torch on the stack."""
    seen: list[Activity] = []

    class Watched(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            seen.append(look())

    class Data(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            seen.append(look())
            return 1

    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: seen.append(look()))
    optimizer.step()
    next(iter(torch.utils.data.DataLoader(Data())))
    assert [activity.phase for activity in seen] == ["optimizer", "data"]


def test_a_collective_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The innermost frame is one of torch.distributed, or a replaced function of it in C."""
    seen: list[Activity] = []

    def stop(*_: object) -> int:
        seen.append(read_activity(sys._getframe(1), {}))
        raise RuntimeError

    monkeypatch.setattr(dist.distributed_c10d, "_rank_not_in_group", stop)
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(1))
    assert (seen[0].phase, seen[0].collective) == ("comm", "all_reduce")
    assert seen[0].site is not None


def test_a_replaced_function_in_c_is_a_collective_where_it_waits() -> None:
    """``Work.wait`` has no frame of its own: the wrapper around it names it."""
    frames: list[FrameType | None] = []

    class Work:
        """Like a function in C: its frame is not on the stack."""

        __name__ = "wait"

        def __call__(self) -> None:
            frames.append(sys._getframe(1))

    wrapper: Callable[[], None] = call_listeners(Work(), [])
    wrapper()
    assert read_activity(frames[0], {}).collective == "wait"
