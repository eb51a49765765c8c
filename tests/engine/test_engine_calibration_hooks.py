"""The cost of a mark is measured on modules of our own: hooks that the user has registered for all never see them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from autoprof.capture.calibration import LimitMeter, measure_mark_ns
from autoprof.testing import FakeClock

Seen = Callable[..., None]


class FunctionMode(TorchFunctionMode):
    """Report each function of torch."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen(function)
        return function(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    """Report each operator."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen(function)
        return function(*args, **(kwargs or {}))


def _registered(name: str) -> Callable[[Seen], Any]:
    @contextmanager
    def register(seen: Seen) -> Iterator[None]:
        handle = getattr(torch_module, name)(lambda *args: seen(args[0]))
        try:
            yield
        finally:
            handle.remove()

    return register


WATCHERS: dict[str, Callable[[Seen], Any]] = {
    "forward pre-hook": _registered("register_module_forward_pre_hook"),
    "forward hook": _registered("register_module_forward_hook"),
    "backward pre-hook": _registered("register_module_full_backward_pre_hook"),
    "backward hook": _registered("register_module_full_backward_hook"),
    "registration of submodules": _registered("register_module_module_registration_hook"),
    "registration of parameters": _registered("register_module_parameter_registration_hook"),
    "mode of functions": FunctionMode,
    "mode of operators": DispatchMode,
    "saved tensors": lambda seen: torch.autograd.graph.saved_tensors_hooks(lambda x: seen(x) or x, lambda x: x),
}


@pytest.mark.parametrize("name", WATCHERS)
def test_the_measurement_is_seen_by_nothing_of_the_users(name: str) -> None:
    """None of its 910 calls, and afterwards the user's own calls are seen as before."""
    seen: list[Any] = []
    with WATCHERS[name](lambda what: seen.append(what)):
        cost = measure_mark_ns(FakeClock(tick_ns=1))
        LimitMeter(FakeClock(tick_ns=1))
        assert seen == []
        layer = nn.Sequential(nn.Linear(2, 2))
        layer(torch.ones(1, 2, requires_grad=True)).pow(2).sum().backward()
        assert seen
    assert cost >= 0
